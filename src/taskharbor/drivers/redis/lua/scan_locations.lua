-- One of the keys in which a Cluster notes the queues of ids (see 12_locations), the number of one of its hashes and a cursor into it,
-- how many ids → ids and queues by turns, about so many or those of a hundred hashes; the number of the hash and the cursor to go
-- on with (0 and 0: that was all); and whether any id is marked (see cluster_registry.lua). Ids that end alike share a hash, which is large
-- then: it is read in slices.
-- without: 15_omniq_stats 16_id_pages 18_omniq_index 20_bookkeeping 25_key_repair 26_id_pages_walk 28_utf8 30_records 40_groups 45_plain_jobs 46_plain_acks 47_plain_leases 50_placement 60_flows 70_terminal 80_store 90_reserve 95_fence 97_read 98_housekeeping 99_sweep
local args = cmsgpack.unpack(ARGV[1])
local at, number, cursor, count, found = args[1], args[2], args[3], args[4], {}
local last = min(number + 99, PARTS - 1)
while number <= last and #found < 2 * count do
  local page = try('HSCAN', at .. ':' .. number, cursor, 'COUNT', count) or {'0', {}}
  for _, value in ipairs(page[2]) do found[#found + 1] = value end
  cursor = page[1]
  if cursor == '0' then number = number + 1 end
end
return {found, number < PARTS and number or 0, cursor, call('EXISTS', at .. ':marked')}
