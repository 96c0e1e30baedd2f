-- queues, ids → for each id the number of the first of these queues that has a record of it, or 0.
-- without: 12_locations 13_locate 15_omniq_stats 16_id_pages 18_omniq_index 20_bookkeeping 25_key_repair 26_id_pages_walk 28_utf8 30_records 40_groups 45_plain_jobs 46_plain_acks 47_plain_leases 50_placement 60_flows 70_terminal 80_store 90_reserve 95_fence 97_read 98_housekeeping 99_sweep
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
