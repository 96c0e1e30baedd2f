-- Returns for each id the number of the first of these queues that has a record of it, or 0.
-- needs: 10_keys
local queues, ids = unpack(ARGS, 4)
local results = {}
for index, id in ipairs(ids) do
  local keys, found = {}, 0
  for number, q in ipairs(queues) do keys[number] = job_key(q, id) end
  if call('EXISTS', unpack(keys)) > 0 then
    repeat found = found + 1 until call('EXISTS', keys[found]) == 1
  end
  results[index] = found
end
return results
