-- A command and its arguments → its reply. For what must be written on a full server, and needs no script of its own.
-- without: 12_notes 13_noted 15_stats 16_ids 18_index 20_books 25_mend 26_ids 28_text 30_record 40_groups 45_plain 46_acks 47_leases 50_lanes 60_flows 70_ends 80_store 90_take 95_fence 97_find 98_tend 99_sweep
even_if_full()
return call(unpack(cmsgpack.unpack(ARGV[1])))
