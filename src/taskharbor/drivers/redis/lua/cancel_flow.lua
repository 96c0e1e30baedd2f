-- now, cluster, home, run, queues or false: all of its, reason, on a Cluster the run's generation, the number of a queue and a
-- cursor into its jobs → how many were cancelled, whether the run has any record, its queues, and where to go on: the number
-- of a queue (0: that was all) and a cursor. The run is flagged before the first job is cancelled; one call cancels a slice.
-- without: 99_sweep
local args = cmsgpack.unpack(ARGV[1])
even_if_full()
th.begin(args[1], args[2], args[3])
local flow, queues, index, cursor = args[4], args[5] or flow_queues(args[4]), args[8], args[9]
local number, any = 0, false
for _, q in ipairs(queues) do
  local has = call('EXISTS', key(q, 'th:flow:' .. flow)) == 1
  any = any or has
  -- Where it has no record, the flag is for a call that is about to store one.
  if th.cluster and has then call('SET', key(q, 'th:flow!:' .. flow), args[7]) end
  if th.cluster and not has then call('SET', key(q, 'th:flow!:' .. flow), args[7], 'EX', 3600) end
end
if any and not th.cluster then call('HSET', flow_key(flow), '!', '1') end

local function is_spent()
  return number >= 100 or th.searched >= 100000
end

while index <= #queues and not is_spent() do
  local q = queues[index]
  local page = call('SSCAN', open_key(q, flow), cursor, 'COUNT', 100)
  for _, id in ipairs(page[2]) do
    if is_spent() then break end
    local job = th.load(q, id)
    local state = job and job.state or ''
    if KNOWN[state] and state ~= 'completed' and state ~= 'failed' and state ~= 'cancelled' then
      th.cancelled(q, id, job, {'th_reason', args[6]})
      number = number + 1
    end
  end
  if not is_spent() then      -- else the same page again: those that were cancelled are no longer in it
    cursor = page[1]
    if cursor == '0' then index = index + 1 end
  end
end
th.finish()
return {number, any and 1 or 0, queues, index <= #queues and index or 0, cursor}
