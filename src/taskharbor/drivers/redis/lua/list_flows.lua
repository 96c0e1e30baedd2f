-- Flows that have jobs in these queues, in the order of their ids, some of each queue.
-- afters: for each queue the flow after which they begin ('': at the first); newest: the other way round, from the last on.
-- Returns for each queue the flows, and the one to go on after (false: that was all).
-- needs: 10_keys
local queues, afters, newest, count = unpack(ARGS, 4)
local results = {}
for index, q in ipairs(queues) do
  local after, at, flows = afters[index], key(q, 'th:flows'), nil
  if newest then
    flows = try('ZRANGE', at, after == '' and '+' or '(' .. after, '-', 'BYLEX', 'REV', 'LIMIT', 0, count)
  else
    flows = try('ZRANGEBYLEX', at, after == '' and '-' or '(' .. after, '+', 'LIMIT', 0, count)
  end
  flows = flows or {}
  results[index] = {flows, #flows == count and flows[count]}
end
return results
