-- run, queues or false → the records of its jobs.
-- without: 99_sweep
local args = cmsgpack.unpack(ARGV[1])
local flow, answers = args[1], {}
for _, q in ipairs(args[2] or flow_queues(flow)) do
  for _, id in ipairs(call('SMEMBERS', key(q, 'th:flow:' .. flow))) do
    local found = th.whole_record(q, id)
    if found then answers[#answers + 1] = found end
  end
end
return answers
