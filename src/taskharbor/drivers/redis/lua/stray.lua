-- list, ids, how many entries from the end to pass over, how many to look at → those of the ids that are among them, and how
-- long the list is.
-- without: 12_notes 13_noted 15_stats 16_ids 18_index 20_books 25_mend 26_ids 28_text 30_record 40_groups 45_plain 46_acks 47_leases 50_lanes 60_flows 70_ends 80_store 90_take 95_fence 97_find 98_tend 99_sweep
local args = cmsgpack.unpack(ARGV[1])
local list, sought, found = args[1], {}, {}
for _, id in ipairs(args[2]) do sought[id] = true end
for _, id in ipairs(call('LRANGE', list, n(-args[3] - args[4]), n(-args[3] - 1))) do
  if sought[id] then found[#found + 1] = id end
end
return {found, call('LLEN', list)}
