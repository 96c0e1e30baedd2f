-- Which of these queues prune.lua should visit: something in them may be past its time or is to follow (lib/cascade.lua), or they hold nothing and can be forgotten.
-- kept_before: the moment before which the time of a job with a `keep_for` of its own must have ended.
-- Returns 1 or 0 for each.
-- needs: 10_keys
local kept_before, queues = unpack(ARGS, 4)

local function is_due(q, lane, before)
  local found = try('ZRANGEBYSCORE', key(q, lane), '-inf', '(' .. n(before), 'LIMIT', 0, 1)
  return not found or #found > 0      -- a key of another type is due too: prune.lua moves it out of the way
end

local results = {}
for index, q in ipairs(queues) do
  local due = is_due(q, 'th:done', th.now) or is_due(q, 'th:cancelled', th.now) or is_due(q, 'th:kept', kept_before)
              or call('EXISTS', key(q, 'th:followed')) == 1
              or not th.cluster and call('EXISTS', key(q, 'th:ids'), key(q, 'wait'), key(q, 'failed'), key(q, 'paused')) == 0
  results[index] = due and 1 or 0
end
return results
