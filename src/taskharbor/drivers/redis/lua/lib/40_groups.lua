-- Groups: which have work and room. A slot is taken by a grant and freed by whatever ends the lease, once.

local function group_key(q, gid, name)
  return '{' .. q .. '}:g:' .. gid .. ':' .. name
end
th.group_key = group_key

-- One rule everywhere: missing or not positive is 1.
function th.limit_of(q, gid)
  local limit = tonumber(call('GET', group_key(q, gid, 'limit')) or 1) or 1
  return limit > 0 and limit or 1
end

function th.inflight(q, gid)
  return tonumber(call('GET', group_key(q, gid, 'inflight')) or 0) or 0
end

-- Whether the group has work and room; it stands in `groups:ready` exactly then. Who comes goes to the end.
function th.group_ready(q, gid)
  local ready = key(q, 'groups:ready')
  if call('LLEN', group_key(q, gid, 'wait')) == 0 or th.inflight(q, gid) >= th.limit_of(q, gid) then
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

function th.hold(q, gid)
  call('INCR', group_key(q, gid, 'inflight'))
end

function th.free(q, gid)
  local at = group_key(q, gid, 'inflight')
  if th.inflight(q, gid) > 1 then call('DECR', at) else call('DEL', at) end
  if th.group_ready(q, gid) then
    th.next(q)
    th.hint(q)
  end
end

-- The first limit that a job brings stays with the group's name.
function th.limit(q, gid, limit)
  local at = group_key(q, gid, 'limit')
  if limit > 0 and (tonumber(call('GET', at) or 0) or 0) <= 0 then
    call('SET', at, n(limit))
    if th.group_ready(q, gid) then
      th.next(q)
      th.hint(q)
    end
  end
end
