-- Cancel the unfinished jobs of a flow, a slice in each call. The flow is flagged before the first job is cancelled.
-- queues: those of the flow, or false: all that it has; generation: of the flow, on a Cluster; queue_number, cursor: where to go on.
-- Returns how many jobs were cancelled, whether the flow has any record, its queues, and where to go on: the number of a queue
-- (0: that was all) and a cursor.
-- without: 99_sweep
local MOST = 100      -- jobs in one script
local flow, queues, reason, generation, queue_number, cursor = unpack(ARGS, 4)
even_if_full()
queues = queues or flow_queues(flow)
local number, any = 0, false
for _, q in ipairs(queues) do
  local has = call('EXISTS', key(q, 'th:flow:' .. flow)) == 1
  any = any or has
  -- Where it has no record, the flag is for a call that is about to store one.
  if th.cluster and has then call('SET', key(q, 'th:flow!:' .. flow), generation) end
  if th.cluster and not has then call('SET', key(q, 'th:flow!:' .. flow), generation, 'EX', 3600) end
end
if any and not th.cluster then call('HSET', flow_key(flow), '!', '1') end

local function is_spent()
  return number >= MOST or th.searched >= 100000
end

while queue_number <= #queues and not is_spent() do
  local q = queues[queue_number]
  local page = call('SSCAN', open_key(q, flow), cursor, 'COUNT', 100)
  for _, id in ipairs(page[2]) do
    if is_spent() then break end
    local job = th.load(q, id)
    local state = job and job.state or ''
    if KNOWN[state] and state ~= 'completed' and state ~= 'failed' and state ~= 'cancelled' then
      local together = state == 'wait' and th.take_with_neighbours(q, id, job, open_key(q, flow), MOST - number) or {id}
      for _, each in ipairs(together) do th.cancelled(q, each, th.load(q, each), {'th_reason', reason}) end
      number = number + #together
    end
  end
  if not is_spent() then      -- else the same page again: those that were cancelled are no longer in it
    cursor = page[1]
    if cursor == '0' then queue_number = queue_number + 1 end
  end
end
th.finish()
return {number, any and 1 or 0, queues, queue_number <= #queues and queue_number or 0, cursor}
