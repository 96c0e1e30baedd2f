-- Compare what blocked jobs wait for with the records of their dependencies, and mend what does not fit.
-- edges: {queue of the dependency, dependency, dependent, its order of storing, what is known}; dependents_q: the queue of all dependents;
-- are_gone: whether a dependency that has no record can be under way no longer.
-- Returns for each 1: the dependency has no record, and nothing was done about it.
-- without: 95_fence 97_read 98_housekeeping 99_sweep
-- with: cascade healing
local edges, dependents_q, are_gone = unpack(ARGS, 4)
even_if_full()
local results = {}
for index, edge in ipairs(edges) do
  results[index] = th.compare(edge[1], edge[2], edge[3], edge[4], dependents_q, edge[5], are_gone) and 1 or 0
end
th.finish()
return results
