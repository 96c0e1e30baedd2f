-- One of the keys in which a Cluster notes the queues of ids (see 12_notes), the number of the first of its hashes, how many ids
-- → ids and queues by turns, from so many hashes that there are as many ids or no more hashes; the number of the next one, 0:
-- that was all; and whether any id is marked (see register.lua).
-- without: 15_stats 16_ids 18_index 20_books 25_mend 26_ids 28_text 30_record 40_groups 45_plain 46_acks 47_leases 50_lanes 60_flows 70_ends 80_store 90_take 95_fence 97_find 98_tend 99_sweep
local args = cmsgpack.unpack(ARGV[1])
local at, number, count, found = args[1], args[2], args[3], {}
local last = min(number + 99, PARTS - 1)
while number <= last and #found < 2 * count do
  for _, value in ipairs(try('HGETALL', at .. ':' .. number) or {}) do found[#found + 1] = value end
  number = number + 1
end
return {found, number < PARTS and number or 0, call('EXISTS', at .. ':marked')}
