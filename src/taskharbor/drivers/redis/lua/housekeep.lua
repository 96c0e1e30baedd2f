-- Look after a queue: what foreign clients finished, and messages of clients that died.
-- pace_ms: do nothing if another client did so in the last pace_ms (0: in any case); watched_count: how many watched jobs to check;
-- compare_every_s: for how long a blocked job is left alone.
-- Returns false if another client did; else whether there is more to do now, how many messages wait in the outbox, ids whose
-- location is not stored yet, whether the queue needs no looking after, and edges to be compared (compare_edges.lua).
-- without: 80_store 95_fence 97_read 99_sweep
-- with: healing
local q, pace_ms, watched_count, compare_every_s = unpack(ARGS, 4)
even_if_full()
if pace_ms > 0 and not call('SET', key(q, 'th:tended'), '1', 'NX', 'PX', n(pace_ms)) then return false end
local more = th.housekeep(q, watched_count)
local edges, more_edges = th.edges_to_compare(q, compare_every_s)
th.finish()
local posted, unnoted = 0, {}
if th.cluster then
  posted = call('ZCARD', key(q, 'th:outbox'))
  unnoted = call('SRANDMEMBER', key(q, 'th:unnoted'), 100)
end
local idle = call('EXISTS', key(q, 'th:watched'), key(q, 'th:alias'), key(q, 'completed'), key(q, 'th:blocked')) == 0
return {(more or more_edges) and 1 or 0, posted, unnoted, idle and posted == 0 and #unnoted == 0 and 1 or 0, edges}
