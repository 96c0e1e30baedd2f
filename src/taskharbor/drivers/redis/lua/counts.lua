-- Count the jobs of queues by state.
-- Returns for each queue ready, scheduled, inflight, blocked, done, dlq, cancelled, paused, and 1 if the waiting jobs of groups are
-- not among the ready ones, because finding the groups would read too much (count_groups.lua).
-- without: 80_store 95_fence 98_housekeeping 99_sweep
local queues = unpack(ARGS, 4)
local FEW = 2000
local results, looked = {}, 0
local now = n(th.now)

-- Counting never fails: a key that holds something else counts as empty.
local function size(command, at, ...)
  return try(command, at, ...) or 0
end

for index, q in ipairs(queues) do
  local ready = size('LLEN', key(q, 'wait')) + size('ZCARD', key(q, 'th:prio'))
                + size('ZCOUNT', key(q, 'delayed'), '-inf', now) + size('ZCOUNT', key(q, 'active'), '-inf', now)
  local groups = size('ZCARD', key(q, 'groups:ready'))
  if call('EXISTS', key(q, 'has_groups')) == 1 then groups = groups + size('ZCARD', key(q, 'active')) end
  looked = looked + groups
  if looked <= FEW then
    for _, gid in ipairs(th.groups(q)) do ready = ready + size('LLEN', group_key(q, gid, 'wait')) end
  end
  results[index] = {
    ready, size('ZCOUNT', key(q, 'delayed'), '(' .. now, '+inf'), size('ZCOUNT', key(q, 'active'), '(' .. now, '+inf'),
    size('ZCARD', key(q, 'th:blocked')), size('ZCARD', key(q, 'th:done')) + size('LLEN', key(q, 'completed')),
    size('LLEN', key(q, 'failed')), size('ZCARD', key(q, 'th:cancelled')), call('EXISTS', key(q, 'paused')),
    groups > 0 and looked > FEW and 1 or 0,
  }
end
return results
