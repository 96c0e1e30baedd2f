-- Reserving: due and expired jobs come into the line first, then sound ones are taken from it.

local BATCH = 2000     -- so many due, and so many expired jobs are moved by one call at most

-- What a reservation answers of a job: see records.py, which has the same list.
local READ = {
  'payload', 'th_type', 'state', 'attempt', 'th_sto', 'th_f', 'gid', 'due_ms', 'created_ms', 'th_x', 'th_max',
  'max_attempts', 'last_error', 'last_error_ms', 'th_fail', 'th_att', 'th_off', 'th_lost', 'th_pri', 'th_key', 'th_flow',
  'th_deps', 'th_xt', 'th_xu', 'th_st', 'th_at', 'th_seq', 'lock_until_ms', 'lease_token', 'th_worker', 'th_heir',
  'th_reason', 'th_fin', 'th_res', 'updated_ms',
}
local TAKEN = 27       -- of these are needed to grant any lease
local P, T, STATE, ATTEMPT, STO, F, GID, DUE, MAX, REAL = 1, 2, 3, 4, 5, 6, 7, 8, 12, 11
local FAIL, ATT, OFF, LOST, XT, XU, ST = 15, 16, 17, 18, 23, 24, 25
th.READ = READ

function th.read(q, id, count)
  local values = call('HMGET', job_key(q, id), unpack(READ, 1, count or #READ))
  if not values[STATE] and not values[P] and not values[STO] then return nil end
  return values
end

local function named(values)
  local job = {}
  for index, value in ipairs(values) do
    if value and value ~= '' then job[READ[index]] = value end
  end
  job.pri = tonumber(job.th_pri or 0) or 0
  return job
end
th.named = named

-- Scheduled jobs whose time has come, in the order of (due, arrival).
function th.promote(q, limit)
  local at = key(q, 'delayed')
  local due = call('ZRANGEBYSCORE', at, '-inf', n(th.now), 'WITHSCORES', 'LIMIT', 0, limit or BATCH)
  if #due == 0 then return 0 end
  local ready, ids = {}, {}
  for index = 1, #due, 2 do
    local id = due[index]
    ids[#ids + 1] = id
    local found = call('HMGET', job_key(q, id), 'state', 'gid', 'th_pri', 'th_seq', 'payload', 'th_sto')
    if found[1] == 'delayed' then
      if found[5] or found[6] then
        ready[#ready + 1] = {id, tonumber(due[index + 1]), tonumber(found[4] or found[6] or 0) or 0, found[2] ~= '' and found[2],
                             tonumber(found[3] or 0) or 0}
      end
    elseif found[1] and not KNOWN[found[1]] then
      local job = th.load(q, id)
      th.set_aside(q, id, job, 'unknown state')
    end
  end
  many('ZREM', at, ids)
  table.sort(ready, function(a, b)
    if a[2] ~= b[2] then return a[2] < b[2] end
    if a[3] ~= b[3] then return a[3] < b[3] end
    return a[1] < b[1]
  end)
  for _, job in ipairs(ready) do
    call('HSET', job_key(q, job[1]), 'state', 'wait', 'th_at', n(job[2]), 'th_seq', n(job[3]), 'updated_ms', n(th.now))
    th.line_up(q, job[1], job[4] or nil, job[5], job[2], job[3])
  end
  return #ready
end

-- A lease that is over: back into the line at the moment it ended, with the old arrival, and still known by token.
function th.expire_one(q, id, job, at)
  call('ZREM', key(q, 'active'), id)
  if job.gid then th.free(q, job.gid) end
  local failures = th.counters(job)
  local attempt = whole(job.attempt)
  local seq = whole(job.th_seq)
  write(q, id, {'state', 'wait', 'th_xt', job.lease_token or '', 'th_xu', n(at), 'th_at', n(at),
                'th_seq', n(seq), 'lease_token', '', 'lock_until_ms', '', 'updated_ms', n(th.now),
                'max_attempts', th.room(attempt, th.real_max(job), failures)})
  th.line_up(q, id, job.gid, job.pri, at, seq)
end

-- Slots held by jobs whose records are gone can only be found by counting: rare, and it walks the whole key space.
function th.recount(q)
  local held, cursor = {}, '0'
  for _, id in ipairs(call('ZRANGE', key(q, 'active'), 0, -1)) do
    local gid = call('HGET', job_key(q, id), 'gid')
    if gid and gid ~= '' then held[gid] = (held[gid] or 0) + 1 end
  end
  local prefix = key(q, 'g:')
  local pattern = string.gsub(prefix, '[%*%?%[%]%^\\]', '\\%0') .. '*:inflight'
  repeat
    local page = call('SCAN', cursor, 'MATCH', pattern, 'COUNT', 1000)
    cursor = page[1]
    for _, at in ipairs(page[2]) do
      local gid = string.sub(at, #prefix + 1, -10)
      local real = held[gid] or 0
      if th.inflight(q, gid) ~= real then
        if real > 0 then call('SET', at, n(real)) else call('DEL', at) end
        if th.group_ready(q, gid) then th.hint(q) end
      end
    end
  until cursor == '0'
end

-- All leases that are over.
function th.expire(q, limit)
  local over = call('ZRANGEBYSCORE', key(q, 'active'), '-inf', n(th.now), 'WITHSCORES', 'LIMIT', 0, limit or BATCH)
  local ghosts = false
  for index = 1, #over, 2 do
    local id, at = over[index], tonumber(over[index + 1])
    local job = th.load(q, id)
    if job and job.state == 'active' then
      th.expire_one(q, id, job, at)
    else
      call('ZREM', key(q, 'active'), id)
      if job and not KNOWN[job.state or ''] then
        if job.gid then th.free(q, job.gid) end
        th.set_aside(q, id, job, 'unknown state')
      else
        ghosts = true   -- its record is gone, or says that it stands elsewhere: nobody knows whose slot it held
      end
    end
  end
  if ghosts then th.recount(q) end
  return #over / 2
end

-- A lease that somebody with a faster clock saw expire, and that holds at this moment.
function th.hold_again(q, id, job)
  write(q, id, {'state', 'active', 'lease_token', job.th_xt, 'lock_until_ms', job.th_xu, 'th_xt', '', 'th_xu', ''})
  call('ZADD', key(q, 'active'), job.th_xu, id)
  if job.gid then th.hold(q, job.gid); th.group_ready(q, job.gid) end
  job.state, job.lease_token, job.lock_until_ms, job.th_xt, job.th_xu = 'active', job.th_xt, job.th_xu, nil, nil
  th.book(q, id, 'active')
end

-- An id that was taken from the line: its values if it may run, else nil, and it stands where it belongs. A job in the line
-- of a group is plain only if its record says that it has one: else nobody would free the slot.
local function sound(q, id, grouped)
  local values = th.plain_values(job_key(q, id))
  if values and (not grouped or (values[6] or '') ~= '') then return values end
  values = th.read(q, id, TAKEN)
  if not values then
    th.book(q, id, false)
    return nil
  end
  local state = values[STATE]
  if state and KNOWN[state] and state ~= 'wait' then return nil end   -- stands elsewhere: this was a stale entry
  local job = named(values)
  if not values[P] and not values[STO] then
    call('DEL', job_key(q, id))     -- a ghost: somebody trimmed the record of a job that was alive
    th.book(q, id, false)
    return nil
  end
  local damage = th.damage(id, job, values[P], values[T])
  if damage then
    th.set_aside(q, id, job, damage)
    return nil
  end
  if th.trusting then return values end     -- OmniQ: whoever put it into the line decided that it may run
  local over = tonumber(job.th_xu or '')
  if over and over > th.now then
    th.hold_again(q, id, job)
    return nil
  end
  local due = tonumber(job.due_ms or '')
  if due and due > th.now and not over then     -- somebody with a faster clock promoted it
    write(q, id, {'state', 'delayed'})
    call('ZADD', key(q, 'delayed'), n(due), id)
    th.book(q, id, 'delayed')
    return nil
  end
  return values
end

local function from_prio(q, positive)
  local at = key(q, 'th:prio')
  local head = call('ZRANGE', at, 0, 0, 'WITHSCORES')
  if not head[1] or (positive and tonumber(head[2]) > 0) then return nil end
  call('ZREM', at, head[1])
  return string.sub(head[1], 32)
end

local function next_ungrouped(q, lanes)
  while true do
    local id = lanes.prio and from_prio(q, true) or call('LPOP', key(q, 'wait')) or (lanes.prio and from_prio(q, false))
    if not id then return nil end
    local values = sound(q, id)
    if values then return {id, values} end
  end
end

local function next_grouped(q)
  while true do
    local gid = call('ZRANGE', key(q, 'groups:ready'), 0, 0)[1]
    if not gid then return nil end
    call('ZREM', key(q, 'groups:ready'), gid)
    if th.inflight(q, gid) < th.limit_of(q, gid) then
      local id = call('LPOP', group_key(q, gid, 'wait'))
      if id then
        grouped[q] = (grouped[q] or 0) - 1
        local values = sound(q, id, true)
        if values then
          th.hold(q, gid)
          th.group_ready(q, gid)
          return {id, values, true}
        end
      end
      th.group_ready(q, gid)
    end
  end
end

-- The whole rest from the ungrouped line, where no group has anything to give.
local function take_ungrouped(q, lanes, taken, limit)
  while lanes.prio and #taken < limit do
    local id = from_prio(q, true)
    if not id then break end
    local values = sound(q, id)
    if values then taken[#taken + 1] = {id, values} end
  end
  while #taken < limit do
    local ids = call('LPOP', key(q, 'wait'), limit - #taken)
    if not ids or #ids == 0 then break end
    for _, id in ipairs(ids) do
      local values = sound(q, id)
      if values then taken[#taken + 1] = {id, values} end
    end
  end
  while lanes.prio and #taken < limit do
    local one = next_ungrouped(q, lanes)
    if not one then break end
    taken[#taken + 1] = one
  end
end

-- Up to `limit` jobs that may run, out of their lines, with their slots held; grouped and ungrouped ones in turn.
function th.take(q, limit)
  th.flush(key(q, 'wait'))
  local taken = {}
  local lanes = {prio = call('EXISTS', key(q, 'th:prio')) == 1}
  local groups = call('EXISTS', key(q, 'groups:ready')) == 1
  local groups_next = call('GET', key(q, 'lane:rr')) ~= '1'
  while #taken < limit do
    if not groups then
      take_ungrouped(q, lanes, taken, limit)
      break
    end
    local one = groups_next and next_grouped(q)
    if one then
      groups_next = false
    else
      if groups_next then groups = false end
      one = next_ungrouped(q, lanes)
      if one then
        groups_next = true
      else
        one = groups and next_grouped(q) or nil
        if not one then break end
        groups_next = false
      end
    end
    taken[#taken + 1] = one
  end
  if #taken > 0 then
    call('SET', key(q, 'lane:rr'), taken[#taken][3] and '1' or '0')
  end
  return taken
end

-- The fields of a lease on a job that has been reserved before, or was in other ways touched.
local function fields_of_lease(v, fields)
  local attempt, last = whole(v[ATTEMPT]), whole(v[ATT])
  local off, fail, lost = whole(v[OFF]), whole(v[FAIL]), whole(v[LOST])
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
  if v[ST] and v[ST] ~= '' then add(fields, 'th_st', '') end
  if not v[REAL] and not v[STO] then
    v[REAL] = v[MAX]
    add(fields, 'th_max', v[MAX] or '0')
  end
  if v[F] ~= 'm' or attempt > 0 or last > 0 then add(fields, 'th_f', '1') end
  add(fields, 'attempt', n(attempt + 1), 'th_att', n(attempt + 1))
  v[ATTEMPT], v[FAIL], v[LOST] = n(attempt + 1 + off), n(fail), n(lost)
  for extra = TAKEN, XT, -1 do v[extra] = nil end
end

-- Put what was taken under leases; answers each job as its id, its token and its values, with its new counters in place
-- of the stored ones.
function th.grant(q, taken, lease, worker, tokens)
  local until_ms, lease_ms = n(th.now + lease), n(lease)
  local now, active = n(th.now), {}
  for index, one in ipairs(taken) do
    local id, v, token = one[1], one[2], tokens[index]
    if #v <= PLAIN + 2 then
      th.lease_plain(job_key(q, id), token, until_ms, lease_ms, worker, now)
    else
      local fields = {'state', 'active', 'lock_until_ms', until_ms, 'lease_token', token, 'timeout_ms', lease_ms,
                      'updated_ms', now, 'th_worker', worker}
      fields_of_lease(v, fields)
      call('HSET', job_key(q, id), unpack(fields))
    end
    active[2 * index - 1] = until_ms
    active[2 * index] = id
    th.book(q, id, 'active')
    taken[index] = {id, token, v}
  end
  many('ZADD', key(q, 'active'), active)
  if #taken > 0 then th.stamp(q, 'reserve') end
  return taken
end

-- What these tokens hold, if they were granted at the moment `first` and their leases are not over: the answer of a grant
-- that was not heard. The leases begin anew now.
function th.granted(q, first, lease, tokens)
  local mine, found, over = {}, {}, n(first + lease)
  if first + lease <= th.now then return found end
  local until_ms, active = n(th.now + lease), {}
  for _, token in ipairs(tokens) do mine[token] = true end
  for _, id in ipairs(call('ZRANGEBYSCORE', key(q, 'active'), over, over)) do
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
