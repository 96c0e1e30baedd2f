-- The ids of jobs in one state, from the list or set that holds it: how many each queue has, or all of them.
-- name: of the list or set. most: how many ids are returned at most; 0: none, only their numbers.
-- indexed: whether to tell how many ids the index of a queue has.
-- Returns for each queue how many there are, how many ids its index has (-1: unknown), and the ids.
-- needs: 10_keys
local queues, name, most, indexed = unpack(ARGS, 4)
local results = {}
for index, q in ipairs(queues) do
  local at, ids = key(q, name), {}
  local size = try(name == 'failed' and 'LLEN' or 'ZCARD', at) or 0
  if size > 0 and size <= most then
    ids = call(name == 'failed' and 'LRANGE' or 'ZRANGE', at, 0, -1)
    most = most - size
  end
  local count = indexed and call('EXISTS', key(q, 'th:ids')) == 1 and (finite(try('GET', key(q, 'th:count'))) or -1) or 0
  results[index] = {size, count, ids}
end
return results
