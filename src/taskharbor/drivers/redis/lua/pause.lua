-- Pause or resume a queue. Returns 1 if that changed anything.
-- without: 80_store 90_reserve 95_fence 97_read 98_housekeeping 99_sweep
local q, on = unpack(ARGS, 4)
even_if_full()
if on then
  if not th.cluster then shared('ZADD', QUEUES, n(th.now), q) end
  return call('SET', key(q, 'paused'), '1') and 1
end
local was = call('DEL', key(q, 'paused'))
if was > 0 then
  th.next_arrival(q)
  th.hint(q, 1000)     -- all that wait there
end
th.finish()
return was
