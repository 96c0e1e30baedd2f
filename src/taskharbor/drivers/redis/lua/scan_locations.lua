-- Read some of the stored locations of ids, on a Cluster (see 12_locations).
-- at: one of the keys; hash_number, cursor: where to go on; count: about how many ids. Returns ids and queues by turns; the number
-- of the hash and the cursor to go on with (0 and 0: that was all); and whether any id is marked (see cluster_registry.lua). Ids
-- that end alike share a hash, which may be large: it is read in slices.
-- needs: 10_keys 12_locations 13_locate
local at, hash_number, cursor, count = unpack(ARGS, 4)
local found = {}
local last = min(hash_number + 99, CLUSTER_HASHES - 1)
while hash_number <= last and #found < 2 * count do
  local page = try('HSCAN', at .. ':' .. hash_number, cursor, 'COUNT', count) or {'0', {}}
  for _, value in ipairs(page[2]) do found[#found + 1] = value end
  cursor = page[1]
  if cursor == '0' then hash_number = hash_number + 1 end
end
return {found, hash_number < CLUSTER_HASHES and hash_number or 0, cursor, call('EXISTS', at .. ':marked')}
