-- queue, ids → for each 1: the queue has its record, 2: it knows it under another id, 0: neither.
-- without: 12_locations 13_locate 15_omniq_stats 16_id_pages 18_omniq_index 20_bookkeeping 25_key_repair 26_id_pages_walk 28_utf8 30_records 40_groups 45_plain_jobs 46_plain_acks 47_plain_leases 50_placement 60_flows 70_terminal 80_store 90_reserve 95_fence 97_read 98_housekeeping 99_sweep
local args = cmsgpack.unpack(ARGV[1])
local answers = {}
for index, id in ipairs(args[2]) do
  answers[index] = call('EXISTS', job_key(args[1], id))
  if answers[index] == 0 and call('HEXISTS', key(args[1], 'th:alias'), id) == 1 then answers[index] = 2 end
end
return answers
