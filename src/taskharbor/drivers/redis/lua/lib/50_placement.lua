-- Lanes: where a job stands, and how it comes and goes. Whoever puts a job into the line first lines up what fell due or
-- expired by then (`th.catch_up`); so everybody goes to the end of a list, and a list is in the order of joining.

local SLICE = 200      -- so many due and expired jobs are lined up by one call, half of them of each kind if there are so many
local FEW = 4          -- of each kind in a further queue, when the slice is used up: no queue waits for another's
local spare = SLICE
local caught = {}      -- queue → the moment up to which this script has lined up what fell due

local function prio_member(id, at, seq)
  return format('%015.0f%016.0f', at, seq) .. id
end

-- Into the line, at a time and with a place in the order of arrival. The hash is written by the caller.
function th.line_up(q, id, gid, pri, at, seq)
  if gid then
    call('RPUSH', group_list(q, gid), id)
    grouped[q] = (grouped[q] or 0) + 1
    th.group_ready(q, gid)
    th.book(q, id, 'wait')
  elseif pri ~= 0 then
    call('ZADD', sound(q, 'th:prio'), n(-pri), prio_member(id, at, seq))
    th.book(q, id, false)
  else
    call('RPUSH', sound(q, 'wait'), id)
    th.book(q, id, 'wait')
  end
end

-- What a slice of `delayed` or `active` holds up to now, read and not changed: its ids and their times.
local function fallen(q, lane, count)
  local found = call('ZRANGEBYSCORE', sound(q, lane), '-inf', n(th.now), 'WITHSCORES', 'LIMIT', 0, count)
  local ids, times = {}, {}
  for index = 1, #found, 2 do
    ids[#ids + 1] = found[index]
    times[#times + 1] = finite(found[index + 1]) or 0
  end
  return ids, times
end

local function earlier(a, b)
  if a.at ~= b.at then return a.at < b.at end
  if a.seq ~= b.seq then return a.seq < b.seq end
  return a.id < b.id
end

-- A scheduled job whose time has come: how it joins the line, or nil, and why it cannot.
local function as_due(q, id, at)
  local found = try('HMGET', job_key(q, id), 'state', 'gid', 'th_pri', 'th_seq', 'payload', 'th_sto')
  if not found then return nil, 'not a hash' end
  local state = found[1]
  if state and not KNOWN[state] then return nil, 'unknown state' end
  if state ~= 'delayed' or not (found[5] or found[6]) then return nil end   -- it stands elsewhere, or is gone
  local seq = finite(found[4] or found[6]) or 0
  return {id = id, at = at, seq = seq, gid = found[2] and found[2] ~= '' and found[2] or nil, pri = finite(found[3]) or 0,
          fields = {'state', 'wait', 'th_at', n(at), 'th_seq', n(seq), 'updated_ms', n(th.now)}}
end

-- A lease that is over: the job joins the line at the moment it ended, with the old arrival, and is still known by token.
local function as_over(id, at, job)
  local seq, attempt = whole(job.th_seq), whole(job.attempt)
  return {id = id, at = at, seq = seq, gid = job.gid, pri = job.pri, held = job,
          fields = {'state', 'wait', 'th_xt', job.lease_token or '', 'th_xu', n(at), 'th_at', n(at), 'th_seq', n(seq),
                    'lease_token', '', 'lock_until_ms', '', 'updated_ms', n(th.now),
                    'max_attempts', th.room(attempt, th.real_max(job), (th.counters(job)))}}
end

-- A foreign client leaves `th_att` as it is.
local function free_slot(q, id, job)
  if job.gid then th.free(q, id, job.gid, whole(job.attempt) ~= whole(job.th_att)) end
end

local function place(q, one)
  if one.held then free_slot(q, one.id, one.held) end
  write(q, one.id, one.fields)
  th.line_up(q, one.id, one.gid, one.pri, one.at, one.seq)
end

function th.expire_one(q, id, job, at)
  call('ZREM', sound(q, 'active'), id)
  place(q, as_over(id, at, job))
end

-- Line up what fell due, and whose lease ended, by now: each at that moment, whatever has come since. A slice in one call, so
-- that it costs the same however much there is; answers whether more is left. Everything is read before anything is moved.
function th.catch_up(q)
  if (caught[q] or -1) >= th.now then return false end
  caught[q] = th.now
  local count = max(FEW, floor(spare / 2))
  local ids, times = fallen(q, 'delayed', count)
  local held, ends = fallen(q, 'active', count)
  if #ids + #held == 0 then return false end
  spare = spare - #ids - #held
  local ready, damaged, ghosts, doubtful = {}, {}, {}, {}
  for index, id in ipairs(ids) do
    local one, damage = as_due(q, id, times[index])
    if one then ready[#ready + 1] = one elseif damage then damaged[#damaged + 1] = {id, damage} end
  end
  for index, id in ipairs(held) do
    local job, is_other = th.load(q, id)
    if job and job.state == 'active' then
      ready[#ready + 1] = as_over(id, ends[index], job)
    elseif is_other or (job and not KNOWN[job.state or '']) then
      damaged[#damaged + 1] = {id, is_other and 'not a hash' or 'unknown state', job or {}}
    else      -- its record is gone, or says that it stands elsewhere
      ghosts[#ghosts + 1] = id
      if job and job.gid and call('HEXISTS', sound(q, 'th:held'), id) == 0 then doubtful[job.gid] = true end
    end
  end
  table.sort(ready, earlier)
  many('ZREM', sound(q, 'delayed'), ids)
  many('ZREM', sound(q, 'active'), held)
  for _, one in ipairs(ready) do place(q, one) end
  for _, one in ipairs(damaged) do
    if one[3] then th.free(q, one[1], one[3].gid) end
    th.set_aside(q, one[1], one[2])
  end
  for _, id in ipairs(ghosts) do th.free(q, id) end
  if next(doubtful) then th.recount(q, doubtful) end
  return #ids == count or #held == count
end

-- Make the slots of these groups (a set) what is really held: by jobs that are noted and active, and by active ones of
-- foreign clients, whose records tell. Where so much is active that counting would hold up others, it is left for later.
local COUNTED = 2000
function th.recount(q, groups)
  local at, active, held, seen = sound(q, 'th:held'), sound(q, 'active'), {}, {}
  if call('HLEN', at) + call('ZCARD', active) > COUNTED then return end
  local function count(id, gid)
    seen[id] = true
    if gid and gid ~= '' then held[gid] = (held[gid] or 0) + 1 end
  end
  local noted = call('HGETALL', at)
  for index = 1, #noted, 2 do
    local id = noted[index]
    if th.is_held(q, id) then count(id, noted[index + 1]) else call('HDEL', at, id) end
  end
  for _, id in ipairs(call('ZRANGE', active, 0, -1)) do
    if not seen[id] then count(id, try('HGET', job_key(q, id), 'gid')) end
  end
  for gid in pairs(groups) do
    local slots, real = group_key(q, gid, 'inflight'), held[gid] or 0
    if th.inflight(q, gid) ~= real then
      if real > 0 then call('SET', slots, n(real)) else call('DEL', slots) end
    end
    if th.group_ready(q, gid) then
      th.next(q)
      th.hint(q)
    end
  end
end

-- Whether an id that is noted in `th:held` is active. Where somebody deleted the lane, its record says so still, and a sweep
-- puts it back.
function th.is_held(q, id)
  return call('ZSCORE', sound(q, 'active'), id) or try('HGET', job_key(q, id), 'state') == 'active'
end

-- A job that stands nowhere goes into the line, or to `delayed` until its time. `fields` are written with it.
function th.join(q, id, job, run_at, fields, seq)
  seq = seq or th.next(q)
  local now = th.now
  if run_at and run_at > now then
    add(fields, 'state', 'delayed', 'due_ms', n(run_at), 'th_at', n(run_at), 'th_seq', n(seq), 'updated_ms', n(now))
    write(q, id, fields)
    call('ZADD', sound(q, 'delayed'), n(run_at), id)
    th.book(q, id, 'delayed')
  else
    th.catch_up(q)
    add(fields, 'state', 'wait', 'due_ms', run_at and n(run_at) or '', 'th_at', n(now), 'th_seq', n(seq),
        'updated_ms', n(now))
    write(q, id, fields)
    th.line_up(q, id, job.gid, job.pri, now, seq)
    th.hint(q)
  end
end

-- Take an id out of a list, looked for from the end that it is nearer to by its time: whoever puts a job into a list goes
-- to one end of it and notes the time. `th.searched` says how many entries were searched, about.
th.searched = 0

local function out_of_list(q, list, id)
  local size = call('LLEN', list)
  if size <= 1000 then return call('LREM', list, 1, id) end
  local times = {}
  for index, each in ipairs({id, call('LINDEX', list, 0), call('LINDEX', list, -1)}) do
    times[index] = finite(try('HGET', job_key(q, each), 'updated_ms')) or 0
  end
  local to_head, to_tail = math.abs(times[1] - times[2]), math.abs(times[1] - times[3])
  local all = max(1, to_head + to_tail)
  th.searched = th.searched + (to_head == to_tail and size / 2 or size * min(to_head, to_tail) / all)
  return call('LREM', list, to_head <= to_tail and 1 or -1, id)
end

local function out_of_line(q, id, job)
  if job.gid then
    if out_of_list(q, group_list(q, job.gid), id) > 0 then
      grouped[q] = (grouped[q] or 0) - 1
      th.group_ready(q, job.gid)
      return true
    end
  elseif job.pri ~= 0 and
         call('ZREM', sound(q, 'th:prio'), prio_member(id, whole(job.th_at), whole(job.th_seq))) > 0 then
    return true
  end
  return out_of_list(q, sound(q, 'wait'), id) > 0    -- where a foreign client promotes whatever has no group
end

local function out_of_active(q, id, job)
  if call('ZREM', sound(q, 'active'), id) > 0 then free_slot(q, id, job) end
end

local LEAVE = {
  wait = out_of_line,
  active = out_of_active,
  delayed = function(q, id) call('ZREM', sound(q, 'delayed'), id) end,
  failed = function(q, id) out_of_list(q, sound(q, 'failed'), id) end,
  completed = function(q, id, job)
    if call('ZREM', sound(q, 'th:done'), id) == 0 then call('LREM', sound(q, 'completed'), 1, id) end
  end,
  cancelled = function(q, id) call('ZREM', sound(q, 'th:cancelled'), id) end,
  blocked = function(q, id)
    call('SREM', sound(q, 'th:blocked'), id)
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
