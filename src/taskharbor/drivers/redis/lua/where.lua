-- queue, ids → for each whether the queue has its record.
-- without: 15_stats 20_books 25_mend 30_record 40_groups 45_plain 46_acks 50_lanes 60_flows 70_ends 80_store 90_take 95_fence 97_find 98_tend
local args = cmsgpack.unpack(ARGV[1])
local answers = {}
for index, id in ipairs(args[2]) do answers[index] = call('EXISTS', job_key(args[1], id)) end
return answers
