-- Groups: which have work and room. A slot is taken by a grant and freed by whatever ends the lease, once. Which job holds a
-- slot of which group is noted in `th:held`, so that the slot comes back also where the record is gone or says otherwise.
-- Foreign clients note nothing there: of the jobs that they hold the record tells.

local function group_key(q, gid, name)
  return '{' .. q .. '}:g:' .. gid .. ':' .. name
end
th.group_key = group_key

-- One rule everywhere: missing or not positive is 1.
function th.limit_of(q, gid)
  local limit = finite(try('GET', group_key(q, gid, 'limit'))) or 1
  return limit > 0 and limit or 1
end

function th.inflight(q, gid)
  return finite(try('GET', group_key(q, gid, 'inflight'))) or 0
end

-- Whether the group has work and room; it stands in `groups:ready` exactly then. Who comes goes to the end.
function th.group_ready(q, gid)
  local ready = sound(q, 'groups:ready')
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

-- The number is written, not counted up: that works whatever somebody left there.
function th.hold(q, id, gid)
  call('SET', group_key(q, gid, 'inflight'), n(th.inflight(q, gid) + 1))
  call('HSET', sound(q, 'th:held'), id, gid)
end

-- `gid`: what the record says, if there is one. `foreign`: a foreign client granted the lease.
function th.free(q, id, gid, foreign)
  local noted = call('HGET', sound(q, 'th:held'), id)
  if noted then
    call('HDEL', key(q, 'th:held'), id)
    if not foreign then gid = noted end
  end
  if not gid or gid == '' then return end
  local at, held = group_key(q, gid, 'inflight'), th.inflight(q, gid)
  if held > 1 then call('SET', at, n(held - 1)) else call('DEL', at) end
  if th.group_ready(q, gid) then
    th.next(q)
    th.hint(q)
  end
end

-- The first limit that a job brings stays with the group's name.
function th.limit(q, gid, limit)
  local at = group_key(q, gid, 'limit')
  if limit > 0 and (finite(try('GET', at)) or 0) <= 0 then
    call('SET', at, n(limit))
    if th.group_ready(q, gid) then
      th.next(q)
      th.hint(q)
    end
  end
end
