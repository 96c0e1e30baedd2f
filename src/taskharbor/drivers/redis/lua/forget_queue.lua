-- cluster, queue → 1: it holds nothing, and no key of it is left.
-- without: 80_store 90_reserve 95_fence 97_read 99_sweep
local args = cmsgpack.unpack(ARGV[1])
even_if_full()
th.begin(0, args[1], args[2])
return th.forget_queue(args[2]) and 1 or 0
