-- list, ids, how many entries from the end to pass over, how many to look at → those of the ids that are among them, and how
-- long the list is.
-- without: 12_locations 13_locate 15_omniq_stats 16_id_pages 18_omniq_index 20_bookkeeping 25_key_repair 26_id_pages_walk 28_utf8 30_records 40_groups 45_plain_jobs 46_plain_acks 47_plain_leases 50_placement 60_flows 70_terminal 80_store 90_reserve 95_fence 97_read 98_housekeeping 99_sweep
local args = cmsgpack.unpack(ARGV[1])
local list, sought, found = args[1], {}, {}
for _, id in ipairs(args[2]) do sought[id] = true end
for _, id in ipairs(call('LRANGE', list, n(-args[3] - args[4]), n(-args[3] - 1))) do
  if sought[id] then found[#found + 1] = id end
end
return {found, call('LLEN', list)}
