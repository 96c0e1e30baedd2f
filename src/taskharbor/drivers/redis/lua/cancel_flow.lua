-- now, cluster, home, run, queues or false, reason → how many of its jobs were cancelled; the run is flagged.
local args = cmsgpack.unpack(ARGV[1])
even_if_full()
th.begin(args[1], args[2], args[3])
local flow, number, any = args[4], 0, false
for _, q in ipairs(args[5] or flow_queues(flow)) do
  for _, id in ipairs(call('SMEMBERS', key(q, 'th:flow:' .. flow))) do
    local job = th.load(q, id)
    if job then
      any = true
      local state = job.state or ''
      if KNOWN[state] and state ~= 'completed' and state ~= 'failed' and state ~= 'cancelled' then
        th.cancelled(q, id, job, {'th_reason', args[6]})
        number = number + 1
      end
    end
  end
  if th.cluster then call('SET', key(q, 'th:flow!:' .. flow), '1') end
end
if any and not th.cluster then call('HSET', flow_key(flow), '!', '1') end
th.finish()
return number
