-- Records that stand in no lane: whatever lost them, a key that was deleted or written over, or a client that stopped half
-- way, nobody would ever look at them again. A sweep walks all ids in turn and puts such records back.

local NEAR = 250       -- entries of a list to either side of where a job should stand
local known_to_stand = {}      -- list → id → true, as far as this script has read
th.searches = 0

-- Since when a record stands where it does.
function th.stood_at(q, id)
  return whole(try('HGET', job_key(q, id), 'updated_ms'))
end

-- Whether an id stands in a list, looked for where its time says: whoever puts a job into a list goes to one end of it and
-- notes the time. nil: not there, and the list is too long to be sure.
local function stands_in(q, list, id, time, newest_first)
  local known = known_to_stand[list]
  if not known then known = {}; known_to_stand[list] = known end
  if known[id] then return true end
  local size = call('LLEN', list)
  if size <= 2 * NEAR then
    for _, each in ipairs(call('LRANGE', list, 0, -1)) do known[each] = true end
    return known[id] or false
  end
  local function is_before(other)
    local its = th.stood_at(q, other)
    if newest_first then return its > time end
    return its < time
  end
  th.searches = th.searches + 1
  local low, high = 0, size
  while low < high do
    local middle = floor((low + high) / 2)
    if is_before(call('LINDEX', list, middle)) then low = middle + 1 else high = middle end
  end
  local from = max(0, low - NEAR)
  for _ = 1, 10 do      -- thousands may have come in the same millisecond
    local entries = call('LRANGE', list, from, from + 2 * NEAR)
    for _, each in ipairs(entries) do known[each] = true end
    if known[id] then return true end
    from = from + 2 * NEAR
    if from >= size or th.stood_at(q, entries[#entries]) ~= time then return nil end
  end
  return nil
end

local function in_line(q, id, job, time)
  if job.pri ~= 0 and not job.gid
     and call('ZSCORE', sound(q, 'th:prio'), prio_member(id, whole(job.th_at), whole(job.th_seq))) then
    return true
  end
  local list = job.gid and group_list(q, job.gid) or sound(q, 'wait')
  return stands_in(q, list, id, time), list
end

local STANDS = {
  wait = in_line,
  failed = function(q, id, job, time) return stands_in(q, sound(q, 'failed'), id, time, true), sound(q, 'failed') end,
  active = function(q, id) return call('ZSCORE', sound(q, 'active'), id) ~= false end,
  delayed = function(q, id) return call('ZSCORE', sound(q, 'delayed'), id) ~= false end,
  cancelled = function(q, id) return call('ZSCORE', sound(q, 'th:cancelled'), id) ~= false end,
  completed = function(q, id)
    if call('ZSCORE', sound(q, 'th:done'), id) then return true end
    for _, each in ipairs(call('LRANGE', sound(q, 'completed'), 0, KEPT)) do
      if each == id then return true end
    end
    return false
  end,
  blocked = function(q, id)
    return call('SISMEMBER', sound(q, 'th:blocked'), id) == 1 and call('EXISTS', key(q, 'th:open:' .. id)) == 1
  end,
}

-- false: the record stands where its state says; true: nowhere; a list: not near its place there. What nobody knows the
-- state of stands among the dead, or where a reserve sets it aside.
function th.absent(q, id, job)
  local time = th.stood_at(q, id)
  local stands = STANDS[job.state or '']
  local found, list
  if stands then
    found, list = stands(q, id, job, time)
  else
    found, list = stands_in(q, sound(q, 'failed'), id, time, true), sound(q, 'failed')
    for _, other in ipairs({'wait', 'active', 'delayed'}) do
      if not found then
        local there, its_list = STANDS[other](q, id, job, time)
        if there then return false end
        if there == nil then found, list = nil, its_list end
      end
    end
  end
  if found then return false end
  if found == nil then return list end
  return true
end

-- Put a record back that stands nowhere.
function th.restore(q, id, job)
  local state = job.state or ''
  if state == 'wait' then
    local seq = th.next(q)
    write(q, id, {'th_at', n(th.now), 'th_seq', n(seq), 'updated_ms', n(th.now), 'th_f', '1'})
    th.line_up(q, id, job.gid, job.pri, th.now, seq)
    th.hint(q)
  elseif state == 'delayed' then
    local due = whole(job.due_ms)
    write(q, id, {'due_ms', n(due)})
    call('ZADD', sound(q, 'delayed'), n(due), id)
    th.book(q, id, 'delayed')
    th.hint(q)
  elseif state == 'active' then     -- when its lease is over, it goes back into the line like any other, and frees its slot
    call('ZADD', sound(q, 'active'), n(whole(job.lock_until_ms)), id)
    th.book(q, id, 'active')
    th.hint(q)
  elseif state == 'completed' then
    th.adopt(q, id, job)
  elseif state == 'cancelled' then
    call('ZADD', sound(q, 'th:cancelled'), n(whole(job.th_fin or th.stood_at(q, id))), id)
    th.close(q, id, job)
    th.book(q, id, false)
  elseif state == 'blocked' then
    if th.link(q, id, job, 'free') > 0 then
      call('SADD', sound(q, 'th:blocked'), id)
    else
      call('SREM', sound(q, 'th:blocked'), id)
      th.join(q, id, job, whole(job.due_ms), {})
    end
  elseif state == 'failed' then
    call('RPUSH', sound(q, 'failed'), id)
    th.book(q, id, 'failed')
  else
    th.set_aside(q, id, 'unknown state')
  end
end
