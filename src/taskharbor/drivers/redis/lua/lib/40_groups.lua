-- Groups: which have work and room. A grant takes a place in the group's limit; whatever ends the lease frees it, once. `th:held`
-- records which job has a place in which group, so that the place is freed even if the record is gone or has changed. Foreign
-- clients write nothing there: for their leases the record decides.

local function group_key(q, gid, name)
  return '{' .. q .. '}:g:' .. gid .. ':' .. name
end

-- A missing or non-positive limit is 1.
function th.limit_of(q, gid)
  local limit = finite(try('GET', group_key(q, gid, 'limit'))) or 1
  return limit > 0 and limit or 1
end

function th.inflight(q, gid)
  return finite(try('GET', group_key(q, gid, 'inflight'))) or 0
end

-- Whether a group has work and room. It is in `groups:ready` exactly then; a group that enters goes to the end.
function th.group_ready(q, gid)
  local ready = safe_key(q, 'groups:ready')
  if (try('LLEN', group_key(q, gid, 'wait')) or 0) == 0 or th.inflight(q, gid) >= th.limit_of(q, gid) then
    call('ZREM', ready, gid)
    return false
  end
  if not call('ZSCORE', ready, gid) then
    local last = call('ZREVRANGE', ready, 0, 0, 'WITHSCORES')
    local turn = th.now
    if last[2] and tonumber(last[2]) >= turn then turn = tonumber(last[2]) + MARGIN end
    call('ZADD', ready, format('%.3f', turn), gid)
  end
  return true
end

-- Make a group known to the next reserve if it has work and room, and wake those that wait for work.
function th.offer_group(q, gid)
  if th.group_ready(q, gid) then
    th.next_arrival(q)
    th.hint(q)
  end
end

-- The number is read and written, not counted up: that works whatever another program left there.
function th.take_place(q, id, gid)
  call('SET', group_key(q, gid, 'inflight'), n(th.inflight(q, gid) + 1))
  call('HSET', safe_key(q, 'th:held'), id, gid)
end

-- `gid`: of the record, if there is one. `foreign`: a foreign client granted the lease.
function th.free_place(q, id, gid, foreign)
  local noted = call('HGET', safe_key(q, 'th:held'), id)
  if noted then
    call('HDEL', key(q, 'th:held'), id)
    if not foreign then gid = noted end
  end
  if not gid or gid == '' then return end
  local at, held = group_key(q, gid, 'inflight'), th.inflight(q, gid)
  if held > 1 then call('SET', at, n(held - 1)) else call('DEL', at) end
  th.offer_group(q, gid)
end

-- The first limit that a job brings is kept with the group.
function th.set_group_limit(q, gid, limit)
  local at = group_key(q, gid, 'limit')
  if limit > 0 and (finite(try('GET', at)) or 0) <= 0 then
    call('SET', at, n(limit))
    th.offer_group(q, gid)
  end
end
