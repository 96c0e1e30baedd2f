-- key, ids → for each id the queue that is noted, or false. On a Cluster: see register.lua.
-- without: 15_stats 16_ids 18_index 20_books 25_mend 26_ids 28_text 30_record 40_groups 45_plain 46_acks 47_leases 50_lanes 60_flows 70_ends 80_store 90_take 95_fence 97_find 98_tend 99_sweep
local args = cmsgpack.unpack(ARGV[1])
local answers = {}
for index, id in ipairs(args[2]) do answers[index] = noted_queue(id, args[1]) end
return answers
