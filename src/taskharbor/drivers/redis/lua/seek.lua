-- queues, ids → for each id the number of the first of these queues that has a record of it, or 0.
-- without: 12_notes 13_noted 15_stats 16_ids 18_index 20_books 25_mend 26_ids 28_text 30_record 40_groups 45_plain 46_acks 47_leases 50_lanes 60_flows 70_ends 80_store 90_take 95_fence 97_find 98_tend 99_sweep
local args = cmsgpack.unpack(ARGV[1])
local queues, answers = args[1], {}
for index, id in ipairs(args[2]) do
  local keys, found = {}, 0
  for number, q in ipairs(queues) do keys[number] = job_key(q, id) end
  if call('EXISTS', unpack(keys)) > 0 then
    repeat found = found + 1 until call('EXISTS', keys[found]) == 1
  end
  answers[index] = found
end
return answers
