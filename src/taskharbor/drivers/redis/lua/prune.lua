-- Go on with what a cancel or a requeue has left (lib/cascade.lua). Then delete records of jobs that finished before the moment `now`, a slice in each call.
-- kept_before: the moment before which the time of a job with a `keep_for` of its own must have ended.
-- flows_open: on a Cluster, flows and whether each is open, by turns; skip_done, skip_cancelled, skip_kept: how many entries to skip.
-- Returns how many jobs followed and how many records were deleted, together, the flows that must be known first (their jobs stayed), how many entries to skip next time
-- in `th:done`, in `th:cancelled` and in `th:kept`, and whether there may be more.
-- A record that is still needed is parked until what needs it has finished, so that no prune meets it twice.
-- without: 95_fence 97_read 99_sweep
-- with: cascade
local kept_before, limit, queues, flows_open, skip_done, skip_cancelled, skip_kept = unpack(ARGS, 4)
even_if_full()
local SLICE = 200
local open, unknown, gone, looked = {}, {}, 0, 0
for index = 1, #flows_open, 2 do open[flows_open[index]] = flows_open[index + 1] end
local passed = {['th:done'] = skip_done, ['th:cancelled'] = skip_cancelled, ['th:kept'] = skip_kept}
-- A foreign client may have published a finished id again: then it is alive, and this entry is left from before.
local STATES = {['th:done'] = {completed = true}, ['th:cancelled'] = {cancelled = true},
                ['th:kept'] = {completed = true, cancelled = true}}

local function needed(q, id, job)
  if open_dependents(q, id) > 0 then return true end
  if not job.th_flow then return false end
  if th.cluster then
    if open[job.th_flow] == nil then unknown[job.th_flow] = true end
    return open[job.th_flow] ~= false
  end
  if not flow_is_open(job.th_flow) then return false end
  call('SADD', safe_key(q, 'th:parked:' .. job.th_flow, 'set'), id)
  return true
end

local function prune_one(q, lane, at, id)
  local job, is_other = th.load(q, id)
  if is_other then
    call('ZREM', at, id)
    th.set_aside(q, id, 'not a hash')
  elseif not job then
    call('ZREM', at, id)
    th.forget(q, id, {pri = 0, state = 'gone'})
  elseif not STATES[lane][job.state or ''] then
    call('ZREM', at, id)
  elseif not needed(q, id, job) then
    th.forget(q, id, job)
    gone = gone + 1
  elseif th.cluster and open_dependents(q, id) == 0 then
    passed[lane] = passed[lane] + 1     -- its flow goes on in other hash slots, and this one does not learn when it ends
  else
    call('ZADD', at, 'XX', '+inf', id)
  end
end

local function prune(q, lane)
  local at = safe_key(q, lane)
  if looked >= SLICE then return end
  local before = '(' .. n(lane == 'th:kept' and kept_before or th.now)
  for _, id in ipairs(call('ZRANGEBYSCORE', at, '-inf', before, 'LIMIT', passed[lane], SLICE - looked)) do
    if gone >= limit then return end
    looked = looked + 1
    -- What belongs to one job may be damaged: it stays, and the others go.
    local ok, why = pcall(prune_one, q, lane, at, id)
    if not ok then
      local text = type(why) == 'table' and why.err or why
      if not string.find(text, 'WRONGTYPE', 1, true) then error(text) end
      call('ZADD', at, 'XX', '+inf', id)
    end
  end
end

local now = th.now
for _, q in ipairs(queues) do
  local at = safe_key(q, 'th:followed')
  local found = call('ZRANGE', at, 0, 99, 'WITHSCORES')
  for index = 1, #found, 2 do
    call('ZREM', at, found[index])
    th.now = finite(found[index + 1]) or now
    th.follow(q, found[index])
  end
end
th.now = now
gone = th.go_on()
local more = false
for _, q in ipairs(queues) do more = more or call('EXISTS', key(q, 'th:followed')) == 1 end
for _, q in ipairs(queues) do
  prune(q, 'th:done')
  prune(q, 'th:cancelled')
  prune(q, 'th:kept')
end
th.finish()
if not th.cluster then
  for _, q in ipairs(queues) do th.forget_queue(q) end
end
local names = {}
for flow in pairs(unknown) do names[#names + 1] = flow end
return {gone, names, passed['th:done'], passed['th:cancelled'], passed['th:kept'], (more or looked >= SLICE) and 1 or 0}
