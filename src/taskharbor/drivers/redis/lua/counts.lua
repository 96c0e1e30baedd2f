-- Count the jobs of queues by state.
-- Returns for each queue ready, scheduled, inflight, blocked, done, dlq, cancelled, paused, and 1 if the waiting jobs of groups are
-- not among the ready ones, because finding the groups would read too much (count_groups.lua).
-- without: 80_store 95_fence 98_housekeeping 99_sweep
local queues = unpack(ARGS, 4)
local FEW = 2000
local NAMES = {'wait', 'th:done', 'failed', 'active', 'delayed', 'th:prio', 'groups:ready', 'th:blocked', 'th:cancelled', 'completed', 'paused'}
local results, looked = {}, 0
local now = n(th.now)

-- Counting never fails: a key that holds something else counts as empty.
local function size(command, at, ...)
  return try(command, at, ...) or 0
end

-- The keys of a queue that are there. Most queues of very many have one or two, which come first: then the others are not looked for.
local function present(q)
  local keys, found = {}, {}
  for index, name in ipairs(NAMES) do keys[index] = key(q, name) end
  local left = call('EXISTS', unpack(keys))
  for index, name in ipairs(NAMES) do
    if left == 0 then break end
    if left == #NAMES - index + 1 or call('EXISTS', keys[index]) == 1 then found[name] = keys[index]; left = left - 1 end
  end
  return found
end

for index, q in ipairs(queues) do
  local there = present(q)
  local function count(command, name, ...)
    return there[name] and size(command, there[name], ...) or 0
  end
  local ready = count('LLEN', 'wait') + count('ZCARD', 'th:prio')
                + count('ZCOUNT', 'delayed', '-inf', now) + count('ZCOUNT', 'active', '-inf', now)
  local groups = count('ZCARD', 'groups:ready')
  if there.active and call('EXISTS', key(q, 'has_groups')) == 1 then groups = groups + count('ZCARD', 'active') end
  looked = looked + groups
  if groups > 0 and looked <= FEW then
    for _, gid in ipairs(th.groups(q)) do ready = ready + size('LLEN', group_key(q, gid, 'wait')) end
  end
  results[index] = {
    ready, count('ZCOUNT', 'delayed', '(' .. now, '+inf'), count('ZCOUNT', 'active', '(' .. now, '+inf'),
    count('ZCARD', 'th:blocked'), count('ZCARD', 'th:done') + count('LLEN', 'completed'),
    count('LLEN', 'failed'), count('ZCARD', 'th:cancelled'), there.paused and 1 or 0,
    groups > 0 and looked > FEW and 1 or 0,
  }
end
return results
