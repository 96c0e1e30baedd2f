-- Read a flow. queues: those that have jobs of it, or false: all that are stored with it.
-- Returns 0 and the records of a flow of up to `most` jobs; 1 and {queue, id} of each job of a larger one.
-- without: 99_sweep
local flow, queues, most = unpack(ARGS, 4)
local total = 0
queues = queues or flow_queues(flow)
for _, q in ipairs(queues) do total = total + (try('SCARD', key(q, 'th:flow:' .. flow)) or 0) end
local results = {}
for _, q in ipairs(queues) do
  for _, id in ipairs(try('SMEMBERS', key(q, 'th:flow:' .. flow)) or {}) do
    if total > most then
      results[#results + 1] = {q, id}
    else
      local found = th.whole_record(q, id)
      if found then results[#results + 1] = found end
    end
  end
end
return {total > most and 1 or 0, results}
