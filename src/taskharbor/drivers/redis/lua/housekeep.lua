-- now, cluster, home, queue, for how many ms nobody else shall look (0: it does not matter who did), how many watched jobs
-- to look at → false: somebody did lately; else whether there is more to look at, how many messages wait in the outbox, ids
-- that are to be noted (see cluster.py), and whether the queue has nothing that needs looking after.
-- without: 80_store 95_fence 97_read 99_sweep
local args = cmsgpack.unpack(ARGV[1])
even_if_full()
th.begin(args[1], args[2], args[3])
local q, pace = args[4], args[5]
if pace > 0 and not call('SET', key(q, 'th:tended'), '1', 'NX', 'PX', n(pace)) then return false end
local more = th.tend(q, args[6])
th.finish()
local posted, unnoted = 0, {}
if th.cluster then
  posted = call('ZCARD', key(q, 'th:outbox'))
  unnoted = call('SRANDMEMBER', key(q, 'th:unnoted'), 100)
end
local idle = call('EXISTS', key(q, 'th:watched'), key(q, 'th:alias'), key(q, 'completed')) == 0
return {more and 1 or 0, posted, unnoted, idle and posted == 0 and #unnoted == 0 and 1 or 0}
