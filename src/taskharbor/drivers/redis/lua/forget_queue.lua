-- Delete what is left of the empty queue `home`, on a Cluster. Returns 1 if it was empty.
-- without: 80_store 90_reserve 95_fence 97_read 99_sweep
even_if_full()
return th.forget_queue(th.home) and 1 or 0
