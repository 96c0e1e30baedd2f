-- Lanes: where a job stands, and how it comes and goes. Lists are kept in the order of (th_at, th_seq), so a job whose
-- time lies before others' goes between them. What a foreign client appended has no time: nobody goes past it.

local tails = {}      -- list → {at, seq}: not before any job in it, for those that this script looked at

local function time_of(q, id)
  local found = call('HMGET', job_key(q, id), 'th_at', 'th_seq', 'th_sto', 'updated_ms')
  local at = found[1] or (found[3] and found[4])      -- one of ours that never went anywhere joined when it was stored
  return tonumber(at or 0) or 0, tonumber(found[2] or found[3] or 0) or 0
end

local function is_later(q, id, at, seq)
  local its_at, its_seq = time_of(q, id)
  return its_at > at or (its_at == at and its_seq > seq)
end

-- Between those that wait: past a few at the end one by one, else found by halving.
local function insert(q, list, id, at, seq)
  local popped, tail = {}, call('LINDEX', list, -1)
  while tail and #popped < 64 and is_later(q, tail, at, seq) do
    popped[#popped + 1] = call('RPOP', list)
    tail = call('LINDEX', list, -1)
  end
  local deep = tail and is_later(q, tail, at, seq)
  if not deep then call('RPUSH', list, id) end
  for index = #popped, 1, -1 do call('RPUSH', list, popped[index]) end
  if not deep then return end
  local low, high = 0, call('LLEN', list) - 1
  while low < high do
    local middle = floor((low + high) / 2)
    if is_later(q, call('LINDEX', list, middle), at, seq) then high = middle else low = middle + 1 end
  end
  call('LINSERT', list, 'BEFORE', call('LINDEX', list, low), id)
end

local function push(q, list, id, at, seq)
  local tail = tails[list]
  if not tail then
    local last = call('LINDEX', list, -1)
    tail = {0, 0}
    if last then tail = {time_of(q, last)} end
    tails[list] = tail
  end
  if at > tail[1] or (at == tail[1] and seq >= tail[2]) then
    tail[1], tail[2] = at, seq
    local ids = buffered[list]
    if not ids then
      ids = {}
      buffered[list] = ids
      if not flushes[list] then flushes[list] = true; drained[#drained + 1] = list end
    end
    ids[#ids + 1] = id
  else
    th.flush(list)
    insert(q, list, id, at, seq)
  end
end

local function prio_member(id, at, seq)
  return format('%015.0f%016.0f', at, seq) .. id
end

-- Into the line, at a time and with a place in the order of arrival. The hash is written by the caller.
function th.line_up(q, id, gid, pri, at, seq)
  if gid then
    local list = group_key(q, gid, 'wait')
    push(q, list, id, at, seq)
    th.flush(list)
    grouped[q] = (grouped[q] or 0) + 1
    th.group_ready(q, gid)
    th.book(q, id, 'wait')
  elseif pri ~= 0 then
    call('ZADD', key(q, 'th:prio'), n(-pri), prio_member(id, at, seq))
    th.book(q, id, false)
  else
    push(q, key(q, 'wait'), id, at, seq)
    th.book(q, id, 'wait')
  end
end

-- A job that stands nowhere goes into the line, or to `delayed` until its time. `fields` are written with it.
function th.join(q, id, job, run_at, fields, seq)
  seq = seq or th.next(q)
  local now = th.now
  if run_at and run_at > now then
    add(fields, 'state', 'delayed', 'due_ms', n(run_at), 'th_at', n(run_at), 'th_seq', n(seq), 'updated_ms', n(now))
    write(q, id, fields)
    call('ZADD', key(q, 'delayed'), n(run_at), id)
    th.book(q, id, 'delayed')
  else
    add(fields, 'state', 'wait', 'due_ms', run_at and n(run_at) or '', 'th_at', n(now), 'th_seq', n(seq),
        'updated_ms', n(now))
    write(q, id, fields)
    th.line_up(q, id, job.gid, job.pri, now, seq)
    th.hint(q)
  end
end

local function out_of_line(q, id, job)
  if job.gid then
    local list = group_key(q, job.gid, 'wait')
    if call('LREM', list, 1, id) > 0 then
      grouped[q] = (grouped[q] or 0) - 1
      th.group_ready(q, job.gid)
      return true
    end
  elseif job.pri ~= 0 and
         call('ZREM', key(q, 'th:prio'), prio_member(id, whole(job.th_at), whole(job.th_seq))) > 0 then
    return true
  end
  local list = key(q, 'wait')   -- where a foreign client promotes whatever has no group
  th.flush(list)
  return call('LREM', list, 1, id) > 0
end

local function out_of_active(q, id, job)
  if call('ZREM', key(q, 'active'), id) > 0 and job.gid then th.free(q, job.gid) end
end

local LEAVE = {
  wait = out_of_line,
  active = out_of_active,
  delayed = function(q, id) call('ZREM', key(q, 'delayed'), id) end,
  failed = function(q, id) call('LREM', key(q, 'failed'), 1, id) end,
  completed = function(q, id, job)
    if call('ZREM', key(q, 'th:done'), id) == 0 then call('LREM', key(q, 'completed'), 1, id) end
  end,
  cancelled = function(q, id) call('ZREM', key(q, 'th:cancelled'), id) end,
  blocked = function(q, id)
    call('SREM', key(q, 'th:blocked'), id)
    call('DEL', key(q, 'th:open:' .. id))
  end,
}

-- Out of whatever lane it stands in, with its slot freed. The hash is written by the caller: where it goes next.
function th.leave(q, id, job)
  if job.state == 'gone' then return th.book(q, id, false) end
  local out = LEAVE[job.state or '']
  if out then
    out(q, id, job)
  else   -- a state that nobody knows: wherever it may be
    for _, each in pairs(LEAVE) do each(q, id, job) end
  end
  th.book(q, id, false)
end

-- What ends a lease, expired or not, in the hash.
function th.no_lease(fields)
  add(fields, 'lease_token', '', 'lock_until_ms', '', 'th_worker', '', 'th_xt', '', 'th_xu', '', 'th_f', '1')
end
