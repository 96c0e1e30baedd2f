-- cluster, home, before, limit, queues or false, run → whether it is open (on a Cluster) → how many records were
-- forgotten, and the runs about which nothing was said: their jobs stayed. What is still needed is put aside until what needs it has finished, so that no prune meets it twice.
local args = cmsgpack.unpack(ARGV[1])
even_if_full()
th.begin(args[3], args[1], args[2])
local limit, gone, open, unknown = args[4], 0, args[6] or {}, {}

local function needed(q, id, job)
  if holders(q, id) > 0 then return true end
  if not job.th_flow then return false end
  if th.cluster then
    if open[job.th_flow] == nil then unknown[job.th_flow] = true end
    return open[job.th_flow] ~= false
  end
  if not flow_is_open(job.th_flow) then return false end
  call('SADD', key(q, 'th:parked:' .. job.th_flow), id)
  return true
end

-- A foreign client may have published a finished id again: then it is alive, and stood here as its own past.
local STATES = {['th:done'] = 'completed', ['th:cancelled'] = 'cancelled'}

local function prune(q, lane)
  local at, skipped = key(q, lane), 0
  while gone < limit do
    local ids = call('ZRANGEBYSCORE', at, '-inf', '(' .. n(args[3]), 'LIMIT', skipped, min(1000, limit - gone))
    if #ids == 0 then return end
    for _, id in ipairs(ids) do
      local job = th.load(q, id)
      if not job then
        call('ZREM', at, id)
        th.forget(q, id, {pri = 0, state = 'gone'})
      elseif job.state ~= STATES[lane] then
        call('ZREM', at, id)
      elseif not needed(q, id, job) then
        th.forget(q, id, job)
        gone = gone + 1
      elseif th.cluster and holders(q, id) == 0 then
        skipped = skipped + 1     -- its run goes on in other slots: nobody here is told when it ends
      else
        call('ZADD', at, 'XX', '+inf', id)
      end
    end
  end
end

for _, q in ipairs(args[5] or call('ZRANGE', QUEUES, 0, -1)) do
  prune(q, 'th:done')
  prune(q, 'th:cancelled')
  th.sweep(q, 200)
end
th.finish()
if not th.cluster then
  for _, q in ipairs(call('ZRANGE', QUEUES, 0, -1)) do th.forget_queue(q) end
end
local names = {}
for flow in pairs(unknown) do names[#names + 1] = flow end
return {gone, names}
