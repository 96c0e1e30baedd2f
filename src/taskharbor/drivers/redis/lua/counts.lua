-- now, queues → for each: ready, scheduled, inflight, blocked, done, dlq, cancelled, paused.
-- without: 80_store 95_fence 98_tend 99_sweep
local args = cmsgpack.unpack(ARGV[1])
local now, answers = n(args[1]), {}
for index, q in ipairs(args[2]) do
  local ready = call('LLEN', key(q, 'wait')) + call('ZCARD', key(q, 'th:prio'))
                + call('ZCOUNT', key(q, 'delayed'), '-inf', now) + call('ZCOUNT', key(q, 'active'), '-inf', now)
  for _, gid in ipairs(th.groups(q)) do ready = ready + call('LLEN', group_key(q, gid, 'wait')) end
  answers[index] = {
    ready, call('ZCOUNT', key(q, 'delayed'), '(' .. now, '+inf'), call('ZCOUNT', key(q, 'active'), '(' .. now, '+inf'),
    call('SCARD', key(q, 'th:blocked')), call('ZCARD', key(q, 'th:done')) + call('LLEN', key(q, 'completed')),
    call('LLEN', key(q, 'failed')), call('ZCARD', key(q, 'th:cancelled')), call('EXISTS', key(q, 'paused')),
  }
end
return answers
