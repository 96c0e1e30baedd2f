-- Whether the queue `home` has these ids, on a Cluster.
-- Returns for each id 1: it has the record, 2: it knows the id as an alias of another, 0: neither.
-- needs: 10_keys
local ids = unpack(ARGS, 4)
local results = {}
for index, id in ipairs(ids) do
  results[index] = call('EXISTS', job_key(th.home, id))
  if results[index] == 0 and call('HEXISTS', key(th.home, 'th:alias'), id) == 1 then results[index] = 2 end
end
return results
