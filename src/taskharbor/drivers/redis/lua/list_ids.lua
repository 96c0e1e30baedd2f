-- Ids of queues in their order, some of each.
-- afters: for each queue the id after which they begin ('': at the first); newest: the other way round, from the last id on; count: how
-- many of each queue; check_others: whether to find out if a queue may hold ids that are not in its index.
-- Returns for each queue the ids, the id to go on after (false: that was all), how many pages of the index are lost, and 1 if it may hold
-- others.
-- without: 99_sweep
local queues, afters, newest, count, check_others = unpack(ARGS, 4)
local MAX_GROUPS = 2000      -- of one queue
local results = {}
for index, q in ipairs(queues) do
  local ids, last, lost = (newest and ids_before or ids_after)(q, afters[index], count)
  results[index] = {ids, last or false, #lost, check_others and th.has_others(q, MAX_GROUPS) and 1 or 0}
end
return results
