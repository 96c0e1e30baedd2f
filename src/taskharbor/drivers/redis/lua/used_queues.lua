-- Which queues have a job or are paused.
-- Returns for each queue 1 if one of its keys is there, else 0; -1 if only groups may hold its jobs.
-- needs: 10_keys
local queues = unpack(ARGS, 4)
local NAMES = {
  'wait', 'th:prio', 'delayed', 'active', 'th:blocked', 'th:done', 'completed', 'failed', 'th:cancelled', 'paused',
}
local results = {}
for index, q in ipairs(queues) do
  local keys = {}
  for place, name in ipairs(NAMES) do keys[place] = key(q, name) end
  results[index] = call('EXISTS', unpack(keys)) > 0 and 1 or -call('EXISTS', key(q, 'groups:ready'))
end
return results
