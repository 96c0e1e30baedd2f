-- How flows are in queues. parts: queue and flow by turns. A small flow is read from its records; a larger one takes a few probes,
-- whatever its size.
-- Returns for each whether some of its jobs there are unfinished, done, cancelled and dead (1 or 0 of each), and ids with the times at which
-- they were created, among them the first and the last; false if the flow has no job there.
-- without: 80_store 95_fence 98_housekeeping 99_sweep
local parts = unpack(ARGS, 4)
even_if_full()
local FEW_STEPS = 10
local MAX_GONE = 20      -- of each kind; the rest goes with the calls that follow
local KINDS_OF_STEPS = {th.UNFINISHED, th.DONE, th.CANCELLED, th.DEAD}

-- The first or the last id of those that are `how`, and when it was stored. A foreign client deletes a job without removing it here.
local function end_of(q, flow, how, reverse)
  local at = key(q, 'th:steps:' .. flow)
  for _ = 1, MAX_GONE do
    local found = reverse and try('ZRANGE', at, how, how, 'BYSCORE', 'REV', 'LIMIT', 0, 1)
                  or not reverse and try('ZRANGEBYSCORE', at, how, how, 'LIMIT', 0, 1)
    local id = found and found[1]
    if not id then return nil end
    local created = try('HMGET', job_key(q, id), 'created_ms', 'th_flow')
    if created and created[2] == flow then return id, created[1] or '0' end
    call('ZREM', at, id)
  end
  return nil
end

local function read_few(q, flow)
  local some, ends = {}, {}
  for _, id in ipairs(try('SMEMBERS', key(q, 'th:flow:' .. flow)) or {}) do
    local found = try('HMGET', job_key(q, id), 'state', 'created_ms', 'th_flow')
    if not found or found[1] or found[3] then
      some[found and STEPS[found[1] or ''] or th.DEAD] = 1
      add(ends, id, found and found[2] or '0')
    end
  end
  return some, ends
end

local function read_many(q, flow)
  local some, ends = {}, {}
  for _, how in ipairs(KINDS_OF_STEPS) do
    local first, created = end_of(q, flow, how, false)
    if first then
      some[how] = 1
      add(ends, first, created)
      add(ends, end_of(q, flow, how, true))
    end
  end
  -- If these were damaged, and begun anew, they miss some jobs. The set of those that are neither done nor cancelled knows better.
  if call('EXISTS', open_key(q, flow)) == 0 then
    some[th.UNFINISHED], some[th.DEAD] = nil, nil
  elseif not some[th.DEAD] then
    some[th.UNFINISHED] = 1
  end
  return some, ends
end

local function read(q, flow)
  local size, results = (try('SCARD', key(q, 'th:flow:' .. flow)) or 0), {}
  if size == 0 then
    call('DEL', key(q, 'th:steps:' .. flow))
    call('ZREM', safe_key(q, 'th:flows'), flow)
    return false
  end
  local some, ends = (size <= FEW_STEPS and read_few or read_many)(q, flow)
  for index, how in ipairs(KINDS_OF_STEPS) do results[index] = some[how] or 0 end
  return #ends > 0 and {results, ends}
end

local results = {}
for index = 1, #parts, 2 do results[#results + 1] = read(parts[index], parts[index + 1]) end
return results
