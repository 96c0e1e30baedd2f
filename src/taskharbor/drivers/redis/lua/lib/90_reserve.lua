-- Reserving: jobs that can run are taken from their lists. An entry is read and judged before it is removed: a record that cannot be
-- read costs its neighbours nothing.

local SKIPS = 200      -- entries without a job that one call clears away
local skipped = 0
local taken_ids = {}   -- queue → id → true: an id that is in a list twice is taken once

-- The fields of a job as they are read; records.py has the same list. A reserve returns those before `th_xt`, and needs those before
-- `lock_until_ms`.
local READ = {
  'payload', 'th_type', 'state', 'attempt', 'th_sto', 'th_f', 'gid', 'due_ms', 'created_ms', 'th_x', 'th_max',
  'max_attempts', 'last_error', 'last_error_ms', 'th_fail', 'th_att', 'th_off', 'th_lost', 'th_pri', 'th_key', 'th_flow',
  'th_deps', 'th_trail', 'th_err', 'th_fp', 'th_note', 'th_ed', 'th_keep', 'th_memo', 'th_xt', 'th_xu', 'th_st', 'th_at', 'th_seq',
  'th_worker', 'th_ran', 'th_began', 'th_la', 'lock_until_ms', 'lease_token', 'th_heir', 'th_reason', 'th_fin', 'th_res',
  'updated_ms',
}
local TAKEN = 38       -- of these are needed to grant any lease
local P, T, STATE, ATTEMPT, STO, F, GID, DUE, MAX, REAL = 1, 2, 3, 4, 5, 6, 7, 8, 12, 11
local FAIL, ATT, OFF, LOST, XT, XU, ST, WORKER, RAN, BEGAN, LA = 15, 16, 17, 18, 30, 31, 32, 35, 36, 37, 38

-- `fields`: those of READ, or some of them with empty names for the others.
function th.read(q, id, count, fields)
  local values = try('HMGET', job_key(q, id), unpack(fields or READ, 1, count or #READ))
  if not values or not values[STATE] and not values[P] and not values[STO] then return nil end
  return values
end

local function named(values)
  local job = {}
  for index, value in ipairs(values) do
    if value and value ~= '' then job[READ[index]] = value end
  end
  job.pri = finite(job.th_pri) or 0
  return job
end

-- A lease that a client with a faster clock saw expire, and that holds at this moment.
function th.restore_lease(q, id, job)
  job.th_xu = n(whole(job.th_xu))
  write(q, id, {'state', 'active', 'lease_token', job.th_xt or '', 'lock_until_ms', job.th_xu, 'th_xt', '', 'th_xu', ''})
  call('ZADD', safe_key(q, 'active'), job.th_xu, id)
  if job.gid then th.take_place(q, id, job.gid); th.group_ready(q, job.gid) end
  job.state, job.lease_token, job.lock_until_ms, job.th_xt, job.th_xu = 'active', job.th_xt, job.th_xu, nil, nil
  th.index(q, id, 'active')
end

-- Judge an entry: its values if the job may run; else nil, and a function that clears it away once it is out of its list. A job in the
-- list of a group is plain only if its record names the group: otherwise nothing would free the group place.
local function judge(q, id, in_group)
  local mine = taken_ids[q]
  if not mine then mine = {}; taken_ids[q] = mine end
  if mine[id] then return nil end
  local values = th.plain_values(job_key(q, id))
  if values and (not in_group or (values[6] or '') ~= '') then
    mine[id] = true
    return values
  end
  values = th.read(q, id, TAKEN)
  local state = values and values[STATE]
  if state and KNOWN[state] and state ~= 'wait' then return nil end   -- it is elsewhere: this was a stale entry
  if not values or not (values[P] or values[STO]) then
    local kind = kind_of(job_key(q, id))
    if kind == 'none' or (kind == 'hash' and not has_id(q, id)) then
      return nil, function()      -- a foreign client trimmed the record of a job that was alive
        call('DEL', job_key(q, id))
        th.index(q, id, false)
      end
    end
    return nil, function() th.set_aside(q, id, kind == 'hash' and 'payload is missing' or 'not a hash') end
  end
  local job = named(values)
  local damage = th.damage(id, job, values[P], values[T])
  if damage then return nil, function() th.set_aside(q, id, damage) end end
  if th.trusting then     -- OmniQ: the client that put it into the list decided that it may run
    mine[id] = true
    return values
  end
  local over = finite(job.th_xu)
  if over and over > th.now then return nil, function() th.restore_lease(q, id, job) end end
  local due = finite(job.due_ms)
  if due and due > th.now and not over then     -- a client with a faster clock promoted it
    return nil, function()
      write(q, id, {'state', 'delayed'})
      call('ZADD', safe_key(q, 'delayed'), n(due), id)
      th.index(q, id, 'delayed')
    end
  end
  mine[id] = true
  return values
end

-- An entry that was judged is out of its list. A granted job takes a place in the group that its record names, which gets it back.
local function take_entry(q, taken, id, values, clear, in_group)
  if values then
    local gid = values[#values <= PLAIN + 2 and 6 or GID]
    if gid and gid ~= '' then th.take_place(q, id, gid) end
    taken[#taken + 1] = {id, values, in_group}
  else
    skipped = skipped + 1
    if clear then clear() end
  end
end

-- One entry from the head of the priorities; `positive`: of those above 0. Returns whether there was one.
local function from_prio(q, taken, positive)
  local at = safe_key(q, 'th:prio')
  local head = call('ZRANGE', at, 0, 0, 'WITHSCORES')
  if not head[1] or (positive and tonumber(head[2]) > 0) then return false end
  local id = string.sub(head[1], 32)
  local values, clear = judge(q, id)
  call('ZREM', at, head[1])
  take_entry(q, taken, id, values, clear)
  return true
end

-- Up to `count` entries from the head of the list. Returns whether there was one.
local function from_wait(q, taken, count)
  local wait = safe_key(q, 'wait')
  local ids, values, clears = call('LRANGE', wait, 0, n(count - 1)), {}, {}
  if #ids == 0 then return false end
  for index, id in ipairs(ids) do values[index], clears[index] = judge(q, id) end
  call('LTRIM', wait, #ids, -1)
  for index, id in ipairs(ids) do take_entry(q, taken, id, values[index], clears[index]) end
  return true
end

-- Ungrouped jobs until `limit` are taken: priorities above 0, the list, priorities below 0. Returns whether it took one.
local function take_ungrouped(q, prio, taken, limit)
  local before = #taken
  while #taken < limit and skipped < SKIPS do
    if not ((prio and from_prio(q, taken, true)) or from_wait(q, taken, limit - #taken)
            or (prio and from_prio(q, taken, false))) then
      break
    end
  end
  return #taken > before
end

-- A job of the group whose turn it is. Returns whether it took one.
local function take_grouped(q, taken)
  local ready = safe_key(q, 'groups:ready')
  while skipped < SKIPS do
    local gid = call('ZRANGE', ready, 0, 0)[1]
    if not gid then return false end
    local list, before = group_list(q, gid), #taken
    local id = th.inflight(q, gid) < th.limit_of(q, gid) and call('LINDEX', list, 0)
    call('ZREM', ready, gid)
    if id then
      local values, clear = judge(q, id, true)
      call('LPOP', list)
      grouped[q] = (grouped[q] or 0) - 1
      take_entry(q, taken, id, values, clear, true)
      th.group_ready(q, gid)
      if #taken > before then return true end
    else
      skipped = skipped + 1
    end
  end
  return false
end

-- Up to `limit` jobs that may run, removed from their lists, with their group places taken; grouped and ungrouped ones in turn. Returns
-- also whether entries are left that were not judged.
function th.take(q, limit)
  local taken = {}
  local prio = call('EXISTS', key(q, 'th:prio')) == 1
  local groups = call('EXISTS', key(q, 'groups:ready')) == 1
  local groups_next = try('GET', key(q, 'lane:rr')) ~= '1'
  while #taken < limit do
    if groups and groups_next then groups = take_grouped(q, taken) end
    if not groups then
      take_ungrouped(q, prio, taken, limit)
      break
    end
    if groups_next then
      groups_next = false
    elseif take_ungrouped(q, prio, taken, #taken + 1) then
      groups_next = true
    else
      while #taken < limit and take_grouped(q, taken) do end
      break
    end
  end
  if #taken > 0 then call('SET', key(q, 'lane:rr'), taken[#taken][3] and '1' or '0') end
  return taken, skipped >= SKIPS
end

local function given(value)
  return value and value ~= '' and value or nil
end

-- The execution before this lease, if it was lost: its worker, when it began, and when it ended, by the end of its lease or by a
-- release; else nil. Of a foreign client's nothing is known but its end.
local function lost_before(v, attempt, last)
  local ended = v[XU]
  if not given(v[XT]) then
    local released, number = string.match(v[LA] or '', '^(%d+):(%d+)$')
    ended = attempt == last and whole(number) == attempt and released
  end
  if whole(ended) <= 0 then return nil end
  if attempt ~= last then return {'', '', n(whole(ended))} end
  return {given(v[WORKER]) or v[RAN] or '', v[BEGAN] or '', n(whole(ended))}
end

-- The fields of a lease on a job that was reserved before, or touched in other ways.
local function fields_of_lease(v, fields)
  local attempt, last = whole(v[ATTEMPT]), whole(v[ATT])
  local off, fail, lost = whole(v[OFF]), whole(v[FAIL]), whole(v[LOST])
  local lost_by = lost_before(v, attempt, last)
  if attempt < last then
    off = off + last
    fail = attempt
    add(fields, 'th_off', n(off), 'th_fail', n(fail))
  elseif attempt > last then
    fail = fail + attempt - last
    add(fields, 'th_fail', n(fail))
  end
  if v[XT] and v[XT] ~= '' then
    lost = lost + 1
    v[DUE] = ''
    add(fields, 'th_lost', n(lost), 'due_ms', '', 'th_xt', '', 'th_xu', '')
  end
  if given(v[ST]) then add(fields, 'th_st', '') end
  if given(v[RAN]) then add(fields, 'th_ran', '') end
  if given(v[LA]) then add(fields, 'th_la', '') end
  if not v[REAL] and not v[STO] then
    v[REAL] = v[MAX]
    add(fields, 'th_max', v[MAX] or '0')
  end
  if v[F] ~= 'm' or attempt > 0 or last > 0 then add(fields, 'th_f', '1') end
  add(fields, 'attempt', n(attempt + 1), 'th_att', n(attempt + 1))
  v[ATTEMPT], v[FAIL], v[LOST] = n(attempt + 1 + off), n(fail), n(lost)
  for extra = TAKEN, XT, -1 do v[extra] = nil end
  if lost_by then v[XT], v[XT + 1], v[XT + 2] = unpack(lost_by) end
end

-- Lease the jobs that were taken; returns for each its id, its token and its values, with the new counters in place of the stored. Three
-- more values if the execution before was lost: see lost_before.
function th.grant(q, taken, lease, worker, tokens)
  local until_ms, lease_ms = n(th.now + lease), n(lease)
  local now, active = n(th.now), {}
  for index, one in ipairs(taken) do
    local id, v, token = one[1], one[2], tokens[index]
    if #v <= PLAIN + 2 then
      th.lease_plain(job_key(q, id), token, until_ms, lease_ms, worker, now)
    else
      local fields = {'state', 'active', 'lock_until_ms', until_ms, 'lease_token', token, 'timeout_ms', lease_ms,
                      'updated_ms', now, 'th_worker', worker, 'th_began', now}
      fields_of_lease(v, fields)
      call('HSET', job_key(q, id), unpack(fields))
    end
    active[2 * index - 1] = until_ms
    active[2 * index] = id
    th.index(q, id, 'active')
    taken[index] = {id, token, v}
  end
  many('ZADD', safe_key(q, 'active'), active)
  if #taken > 0 then th.note_step(q, 'reserve') end
  return taken
end

-- Whether the driver leased a job to the worker with a token that is not in `kept`: its place in the order of arrival, or nil. A foreign
-- client leaves `th_att` and the name of an earlier worker as they are; a consumer of `taskharbor.omniq` has no name, where a
-- nameless worker has an empty one.
function th.lease_of(q, id, worker, kept)
  local found = try('HMGET', job_key(q, id), 'th_worker', 'state', 'attempt', 'th_att', 'lease_token', 'th_seq', 'th_sto')
  if not found or found[1] ~= worker or found[2] ~= 'active' or whole(found[3]) ~= whole(found[4])
     or kept[found[5] or ''] then
    return nil
  end
  return whole(found[6] or found[7])
end

-- What these tokens hold, if they were granted at the time `first` and their leases are not over: the result of a grant whose reply was
-- lost. The leases begin anew now.
function th.regrant(q, first, lease, tokens)
  local mine, found, over = {}, {}, n(first + lease)
  if first + lease <= th.now then return found end
  local until_ms, active = n(th.now + lease), {}
  for _, token in ipairs(tokens) do mine[token] = true end
  for _, id in ipairs(call('ZRANGEBYSCORE', safe_key(q, 'active'), over, over)) do
    local v = th.read(q, id)
    local job = v and named(v)
    if job and job.state == 'active' and job.lease_token and mine[job.lease_token] then
      local failures, deliveries = th.counters(job)
      v[ATTEMPT], v[FAIL], v[LOST] = n(deliveries), n(failures), n(whole(job.th_lost))
      for extra = #READ, XT, -1 do v[extra] = nil end
      found[#found + 1] = {id, job.lease_token, v}
      active[#active + 1] = until_ms
      active[#active + 1] = id
    end
  end
  many('ZADD', key(q, 'active'), active)
  for _, one in ipairs(found) do call('HSET', job_key(q, one[1]), 'lock_until_ms', until_ms, 'updated_ms', n(th.now)) end
  return found
end
