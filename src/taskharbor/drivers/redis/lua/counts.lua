-- Count the jobs of queues by state.
-- Returns for each queue ready, scheduled, inflight, blocked, done, dlq, cancelled, paused, and 1 if the waiting jobs of groups are
-- not among the ready ones, because finding the groups would read too much (count_groups.lua).
-- without: 80_store 95_fence 98_housekeeping 99_sweep
local queues = unpack(ARGS, 4)
local FEW = 2000
local NAMES = {
  'wait', 'th:done', 'failed', 'active', 'delayed', 'th:prio', 'groups:ready', 'th:blocked', 'th:cancelled', 'completed', 'paused',
  'has_groups',
}
local results, looked = {}, 0
local now = n(th.now)

for index, q in ipairs(queues) do
  local sizes = th.sizes(q, NAMES)
  local function size(name)
    return sizes[name] or 0
  end
  local function due(name)
    return size(name) > 0 and call('ZCOUNT', key(q, name), '-inf', now) or 0
  end
  local delayed, expired = due('delayed'), due('active')
  local ready, groups = size('wait') + size('th:prio') + delayed + expired, size('groups:ready')
  if sizes.has_groups then groups = groups + size('active') end
  looked = looked + groups
  if groups > 0 and looked <= FEW then
    for _, gid in ipairs(th.groups(q)) do ready = ready + (try('LLEN', group_key(q, gid, 'wait')) or 0) end
  end
  results[index] = {
    ready, size('delayed') - delayed, size('active') - expired, size('th:blocked'), size('th:done') + size('completed'),
    size('failed'), size('th:cancelled'), sizes.paused and 1 or 0, groups > 0 and looked > FEW and 1 or 0,
  }
end
return results
