-- now, cluster, home, run, queues or false, reason, on a Cluster the run's generation → how many of its jobs were cancelled,
-- and whether it has any; the run is flagged.
-- without: 99_sweep
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
  -- Where it has no record, the flag is for a call that is about to store one.
  if th.cluster and any then call('SET', key(q, 'th:flow!:' .. flow), args[7]) end
  if th.cluster and not any then call('SET', key(q, 'th:flow!:' .. flow), args[7], 'EX', 3600) end
end
if any and not th.cluster then call('HSET', flow_key(flow), '!', '1') end
th.finish()
return {number, any and 1 or 0}
