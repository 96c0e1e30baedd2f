-- Placement: which list or sorted set holds a job, and how it moves between them. A script that makes a job ready first moves the due
-- and expired ones (`th.move_due`). So every job goes to the end of its list, and a list is in the order of becoming ready.

local SLICE = 200      -- due and expired jobs that one call moves, up to half of them of each kind
local FEW = 4          -- of each kind in a further queue once the slice is used up: no queue waits for another
local slice_left = SLICE
local moved_until = {}      -- queue → the time up to which this script has moved due jobs

local function prio_member(id, at, seq)
  return format('%015.0f%016.0f', at, seq) .. id
end

-- Make a job ready, at a time and with a place in the order of arrival. The caller writes the hash.
function th.push_ready(q, id, gid, pri, at, seq)
  if gid then
    call('RPUSH', group_list(q, gid), id)
    grouped[q] = (grouped[q] or 0) + 1
    th.group_ready(q, gid)
    th.index(q, id, 'wait')
  elseif pri ~= 0 then
    call('ZADD', safe_key(q, 'th:prio'), n(-pri), prio_member(id, at, seq))
    th.index(q, id, false)
  else
    call('RPUSH', safe_key(q, 'wait'), id)
    th.index(q, id, 'wait')
  end
end

-- The ids and times of a slice of `delayed` or `active` up to now. Changes nothing.
local function due_entries(q, name, count)
  local found = call('ZRANGEBYSCORE', safe_key(q, name), '-inf', n(th.now), 'WITHSCORES', 'LIMIT', 0, count)
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

-- A scheduled job whose time has come, as it becomes ready; or nil, and why it cannot.
local function due_job(q, id, at)
  local found = try('HMGET', job_key(q, id), 'state', 'gid', 'th_pri', 'th_seq', 'payload', 'th_sto')
  if not found then return nil, 'not a hash' end
  local state = found[1]
  if state and not KNOWN[state] then return nil, 'unknown state' end
  if state ~= 'delayed' or not (found[5] or found[6]) then return nil end   -- it is elsewhere, or gone
  local seq = finite(found[4] or found[6]) or 0
  return {id = id, at = at, seq = seq, gid = found[2] and found[2] ~= '' and found[2] or nil, pri = finite(found[3]) or 0,
          fields = {'state', 'wait', 'th_at', n(at), 'th_seq', n(seq), 'updated_ms', n(th.now)}}
end

-- A job whose lease is over, as it becomes ready: at the moment the lease ended, with its old arrival, and still known by its token.
local function expired_job(id, at, job)
  local seq, attempt = whole(job.th_seq), whole(job.attempt)
  return {id = id, at = at, seq = seq, gid = job.gid, pri = job.pri, held = job,
          fields = {'state', 'wait', 'th_xt', job.lease_token or '', 'th_xu', n(at), 'th_at', n(at), 'th_seq', n(seq),
                    'lease_token', '', 'lock_until_ms', '', 'updated_ms', n(th.now),
                    'max_attempts', th.shown_max(attempt, th.real_max(job), (th.counters(job)))}}
end

-- A lease of a foreign client is known by its `th_att`, which it leaves as it is.
local function free_place_of(q, id, job)
  if job.gid then th.free_place(q, id, job.gid, whole(job.attempt) ~= whole(job.th_att)) end
end

local function move_to_ready(q, one)
  if one.held then free_place_of(q, one.id, one.held) end
  write(q, one.id, one.fields)
  th.push_ready(q, one.id, one.gid, one.pri, one.at, one.seq)
end

function th.expire_one(q, id, job, at)
  call('ZREM', safe_key(q, 'active'), id)
  move_to_ready(q, expired_job(id, at, job))
end

-- Make ready what is due and whose lease ended by now, each as of that moment. One call moves a slice, so that it costs the same
-- however many there are; returns whether more are left. Everything is read before anything is moved.
function th.move_due(q)
  if (moved_until[q] or -1) >= th.now then return false end
  moved_until[q] = th.now
  local count = max(FEW, floor(slice_left / 2))
  local ids, times = due_entries(q, 'delayed', count)
  local held, ends = due_entries(q, 'active', count)
  if #ids + #held == 0 then return false end
  slice_left = slice_left - #ids - #held
  local ready, damaged, ghosts, doubtful = {}, {}, {}, {}
  for index, id in ipairs(ids) do
    local one, damage = due_job(q, id, times[index])
    if one then ready[#ready + 1] = one elseif damage then damaged[#damaged + 1] = {id, damage} end
  end
  for index, id in ipairs(held) do
    local job, is_other = th.load(q, id)
    if job and job.state == 'active' then
      ready[#ready + 1] = expired_job(id, ends[index], job)
    elseif is_other or (job and not KNOWN[job.state or '']) then
      damaged[#damaged + 1] = {id, is_other and 'not a hash' or 'unknown state', job or {}}
    else      -- its record is gone, or is in another state
      ghosts[#ghosts + 1] = id
      if job and job.gid and call('HEXISTS', safe_key(q, 'th:held'), id) == 0 then doubtful[job.gid] = true end
    end
  end
  table.sort(ready, earlier)
  many('ZREM', safe_key(q, 'delayed'), ids)
  many('ZREM', safe_key(q, 'active'), held)
  for _, one in ipairs(ready) do move_to_ready(q, one) end
  for _, one in ipairs(damaged) do
    if one[3] then th.free_place(q, one[1], one[3].gid) end
    th.set_aside(q, one[1], one[2])
  end
  for _, id in ipairs(ghosts) do th.free_place(q, id) end
  if next(doubtful) then th.recount_groups(q, doubtful) end
  local has_more = #ids == count or #held == count
  if has_more then call('SET', key(q, 'th:sliced'), n(th.now)) end
  return has_more
end

-- Correct the places taken in these groups (a set): those of recorded active jobs, and of active jobs of foreign clients, by their
-- records. If counting the active ones would delay other calls, it is left for later.
local COUNTED = 2000
function th.recount_groups(q, groups)
  local at, active, held, seen = safe_key(q, 'th:held'), safe_key(q, 'active'), {}, {}
  if call('HLEN', at) + call('ZCARD', active) > COUNTED then return end
  local function count(id, gid)
    seen[id] = true
    if gid and gid ~= '' then held[gid] = (held[gid] or 0) + 1 end
  end
  local noted = call('HGETALL', at)
  for index = 1, #noted, 2 do
    local id = noted[index]
    if th.is_active(q, id) then count(id, noted[index + 1]) else call('HDEL', at, id) end
  end
  for _, id in ipairs(call('ZRANGE', active, 0, -1)) do
    if not seen[id] then count(id, try('HGET', job_key(q, id), 'gid')) end
  end
  for gid in pairs(groups) do
    local at_group, real = group_key(q, gid, 'inflight'), held[gid] or 0
    if th.inflight(q, gid) ~= real then
      if real > 0 then call('SET', at_group, n(real)) else call('DEL', at_group) end
    end
    th.offer_group(q, gid)
  end
end

-- Whether an id in `th:held` is active. If another program deleted `active`, the record still says so, and a sweep puts it back.
function th.is_active(q, id)
  return call('ZSCORE', safe_key(q, 'active'), id) or try('HGET', job_key(q, id), 'state') == 'active'
end

-- Place a job that is in no list: ready, or in `delayed` until its time. `fields` are written with it.
function th.place(q, id, job, run_at, fields, seq)
  seq = seq or th.next_arrival(q)
  local now = th.now
  if run_at and run_at > now then
    add(fields, 'state', 'delayed', 'due_ms', n(run_at), 'th_at', n(run_at), 'th_seq', n(seq), 'updated_ms', n(now))
    write(q, id, fields)
    call('ZADD', safe_key(q, 'delayed'), n(run_at), id)
    th.index(q, id, 'delayed')
  else
    th.move_due(q)
    add(fields, 'state', 'wait', 'due_ms', run_at and n(run_at) or '', 'th_at', n(now), 'th_seq', n(seq),
        'updated_ms', n(now))
    write(q, id, fields)
    th.push_ready(q, id, job.gid, job.pri, now, seq)
    th.hint(q)
  end
end

-- Remove an id from a list, searching from the end that is nearer by its time: a job enters a list at one end, with its time.
-- `th.searched` counts about how many entries were searched.
local out_of_list
th.searched = 0
do      -- a script may have 200 locals

local SHORT = 1000      -- entries that are searched without a thought
local taken = {}        -- list → ids that th.take_with_neighbours has removed from it

-- 1: the head is nearer; -1: the tail.
local function nearer_end(q, list, id, size)
  local times = {}
  for index, each in ipairs({id, call('LINDEX', list, 0), call('LINDEX', list, -1)}) do
    times[index] = finite(try('HGET', job_key(q, each), 'updated_ms')) or 0
  end
  local to_head, to_tail = math.abs(times[1] - times[2]), math.abs(times[1] - times[3])
  local all = max(1, to_head + to_tail)
  th.searched = th.searched + (to_head == to_tail and size / 2 or size * min(to_head, to_tail) / all)
  return to_head <= to_tail and 1 or -1
end

function out_of_list(q, list, id)
  if taken[list] and taken[list][id] then
    taken[list][id] = nil
    return 1
  end
  local size = call('LLEN', list)
  return call('LREM', list, size <= SHORT and 1 or nearer_end(q, list, id, size), id)
end

-- Remove an id from the tail of a list. `th.remove` finds it removed.
function th.take_from_tail(list, id)
  taken[list] = taken[list] or {}
  taken[list][id] = call('LREM', list, -1, id) > 0 or nil
end

-- Remove a ready job from its list, and with it up to `most` in all that stand near it, are in a set, and ready: a long list is searched
-- once for all of them. The caller does with each of them what comes with `th.remove`, which finds them removed. Returns their ids.
function th.take_with_neighbours(q, id, job, set, most)
  local list = job.gid and group_list(q, job.gid) or safe_key(q, 'wait')
  local size = call('LLEN', list)
  if size <= SHORT or (job.pri ~= 0 and not job.gid) then return {id} end
  local from = nearer_end(q, list, id, size)
  local place = call('LPOS', list, id, 'RANK', from)
  if not place then return {id} end
  local first = max(0, place - most)
  local near = call('LRANGE', list, first, place + most)
  local is_in = call('SMISMEMBER', set, unpack(near))
  local ids, found, away = {}, {}, 0
  while #ids < most and away <= most do
    for _, index in ipairs(away == 0 and {place} or {place - away, place + away}) do
      local each = near[index - first + 1]
      if index >= first and each and is_in[index - first + 1] == 1 and not found[each] and #ids < most then
        local other = th.load(q, each)
        if other and other.state == 'wait' and other.gid == job.gid and (other.gid or other.pri == 0) then
          call('LSET', list, index, '')
          ids[#ids + 1], found[each] = each, true
        end
      end
    end
    away = away + 1
  end
  call('LREM', list, from * #ids, '')
  taken[list] = found
  return ids
end

end

local function out_of_ready(q, id, job)
  if job.gid then
    if out_of_list(q, group_list(q, job.gid), id) > 0 then
      grouped[q] = (grouped[q] or 0) - 1
      th.group_ready(q, job.gid)
      return true
    end
  elseif job.pri ~= 0 and
         call('ZREM', safe_key(q, 'th:prio'), prio_member(id, whole(job.th_at), whole(job.th_seq))) > 0 then
    return true
  end
  return out_of_list(q, safe_key(q, 'wait'), id) > 0    -- foreign clients put every job without a group here
end

local function out_of_active(q, id, job)
  if call('ZREM', safe_key(q, 'active'), id) > 0 then free_place_of(q, id, job) end
end

local REMOVERS = {
  wait = out_of_ready,
  active = out_of_active,
  delayed = function(q, id) call('ZREM', safe_key(q, 'delayed'), id) end,
  failed = function(q, id, job)
    out_of_list(q, safe_key(q, 'failed'), id)
    if job.th_flow then th.set_step(q, id, job.th_flow, th.UNFINISHED) end
  end,
  completed = function(q, id, job)
    if call('ZREM', safe_key(q, 'th:done'), id) == 0 then call('LREM', safe_key(q, 'completed'), 1, id) end
    if job.th_keep then call('ZREM', safe_key(q, 'th:kept'), id) end
  end,
  cancelled = function(q, id, job)
    call('ZREM', safe_key(q, 'th:cancelled'), id)
    if job.th_keep then call('ZREM', safe_key(q, 'th:kept'), id) end
    if job.th_flow then th.set_step(q, id, job.th_flow, th.UNFINISHED) end
  end,
  blocked = function(q, id)
    call('ZREM', safe_key(q, 'th:blocked'), id)
    call('DEL', key(q, 'th:open:' .. id))
  end,
}

-- Remove a job from the list or set that holds it, and free its group place. The caller writes the hash: where it goes next.
function th.remove(q, id, job)
  if job.state == 'gone' then return th.index(q, id, false) end
  local out = REMOVERS[job.state or '']
  if out then
    out(q, id, job)
  else   -- an unknown state: it may be anywhere
    for _, each in pairs(REMOVERS) do each(q, id, job) end
  end
  th.index(q, id, false)
end

-- The fields that end a lease, expired or not. The worker is remembered under another name: `th_worker` says who has the lease, and a
-- foreign client that leases the job later does not write it.
function th.clear_lease(fields, job)
  add(fields, 'lease_token', '', 'lock_until_ms', '', 'th_worker', '', 'th_xt', '', 'th_xu', '', 'th_f', '1')
  if job.th_worker then add(fields, 'th_ran', job.th_worker) end
  if job.th_la then add(fields, 'th_la', '') end
end
