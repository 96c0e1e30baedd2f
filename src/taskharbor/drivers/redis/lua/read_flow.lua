-- run, queues or false: all of its → 0 and the records of its jobs, if there are few; else 1 and queue and id of each.
-- without: 99_sweep
local args = cmsgpack.unpack(ARGV[1])
local flow, queues, total = args[1], args[2] or flow_queues(args[1]), 0
for _, q in ipairs(queues) do total = total + call('SCARD', key(q, 'th:flow:' .. flow)) end
local answers = {}
for _, q in ipairs(queues) do
  for _, id in ipairs(call('SMEMBERS', key(q, 'th:flow:' .. flow))) do
    if total > 500 then
      answers[#answers + 1] = {q, id}
    else
      local found = th.whole_record(q, id)
      if found then answers[#answers + 1] = found end
    end
  end
end
return {total > 500 and 1 or 0, answers}
