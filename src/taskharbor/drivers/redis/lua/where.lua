-- queue, ids → for each 1: the queue has its record, 2: it knows it under another id, 0: neither.
-- without: 12_notes 13_noted 15_stats 16_ids 18_index 20_books 25_mend 26_ids 28_text 30_record 40_groups 45_plain 46_acks 47_leases 50_lanes 60_flows 70_ends 80_store 90_take 95_fence 97_find 98_tend 99_sweep
local args = cmsgpack.unpack(ARGV[1])
local answers = {}
for index, id in ipairs(args[2]) do
  answers[index] = call('EXISTS', job_key(args[1], id))
  if answers[index] == 0 and call('HEXISTS', key(args[1], 'th:alias'), id) == 1 then answers[index] = 2 end
end
return answers
