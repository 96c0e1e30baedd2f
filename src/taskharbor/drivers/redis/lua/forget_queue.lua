-- Delete what is left of the empty queue `home`, on a Cluster. Returns 1 if it was empty.
-- without: 80_store 90_reserve 95_fence 97_read 99_sweep
local now, cluster, home = unpack(cmsgpack.unpack(ARGV[1]))
even_if_full()
th.begin(now, cluster, home)
return th.forget_queue(home) and 1 or 0
