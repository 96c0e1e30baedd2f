-- A command and its arguments → its reply. For what must be written on a full server, and needs no script of its own.
-- without: 12_locations 13_locate 15_omniq_stats 16_id_pages 18_omniq_index 20_bookkeeping 25_key_repair 26_id_pages_walk 28_utf8 30_records 40_groups 45_plain_jobs 46_plain_acks 47_plain_leases 50_placement 60_flows 70_terminal 80_store 90_reserve 95_fence 97_read 98_housekeeping 99_sweep
even_if_full()
return call(unpack(cmsgpack.unpack(ARGV[1])))
