-- Plain jobs: ours, without edges, run, key, priority or history. Nearly every job is one, and the scripts that see nothing
-- else (put.lua, take.lua, ack.lua) bring nothing else. What they do for many jobs is written for all of them at once.
-- `th_f` tells: missing or empty for a plain job, `p` for one that has a group or a time as well, `m` for one that also
-- belongs to a run or is depended on (settle.lua), else it is none.
-- A field is found by walking the record, so those that are read most come first.

local PLAIN = 5       -- values tell all about a plain job that nobody has reserved yet, and two more if it has `th_f`
local texts = {}      -- numbers that the jobs of a call share

local function in_words(number)
  local found = texts[number]
  if not found then found = n(number); texts[number] = found end
  return found
end

-- `timeout` in ms or 0, `limit`: max_attempts or 0, `extra`: th_x or false. The time of joining is `updated_ms`.
function th.put_plain(at, id, payload, type, timeout, limit, extra, created, sto, now)
  timeout = timeout > 0 and in_words(timeout) or '60000'
  local shown = in_words(limit > 0 and limit or DEFAULT_MAX)
  if extra then
    call('HSET', at, 'state', 'wait', 'attempt', '0', 'payload', payload, 'th_type', type, 'th_max', in_words(limit),
         'created_ms', in_words(created), 'th_x', extra, 'updated_ms', now, 'timeout_ms', timeout, 'max_attempts', shown,
         'backoff_ms', '5000', 'id', id, 'th_sto', sto)
  elseif limit == 0 then
    call('HSET', at, 'state', 'wait', 'attempt', '0', 'payload', payload, 'th_type', type,
         'created_ms', in_words(created), 'updated_ms', now, 'timeout_ms', timeout, 'max_attempts', shown,
         'backoff_ms', '5000', 'id', id, 'th_sto', sto)
  else
    call('HSET', at, 'state', 'wait', 'attempt', '0', 'payload', payload, 'th_type', type, 'th_max', in_words(limit),
         'created_ms', in_words(created), 'updated_ms', now, 'timeout_ms', timeout, 'max_attempts', shown,
         'backoff_ms', '5000', 'id', id, 'th_sto', sto)
  end
end

-- Whether something is to be lined up first, or a key does not hold what it should: for a script that moves more.
local function fell_due(q, now)
  return try('ZCOUNT', key(q, 'delayed'), '-inf', now) ~= 0 or try('ZCOUNT', key(q, 'active'), '-inf', now) ~= 0
end

-- Those values, if the job is plain and may run; else nil.
function th.plain_values(at)
  local v = try('HMGET', at, 'payload', 'th_type', 'created_ms', 'th_x', 'th_max', 'state', 'attempt', 'th_f')
  if not v or v[6] ~= 'wait' or v[7] ~= '0' or not v[1] or not v[2] or v[2] == '' or (v[5] and not finite(v[5]))
     or not is_text(v[2]) or not is_text(at) then
    return nil
  end
  local more = v[8]
  v[6], v[7], v[8] = nil, nil, nil
  if not more or more == '' then return v end
  if more ~= 'p' then return nil end
  local found = call('HMGET', at, 'gid', 'due_ms')
  local due = found[2]
  if due and due ~= '' and not ((finite(due) or th.now + 1) <= th.now) then return nil end
  v[6], v[7] = found[1], due
  return v
end

-- Put a plain job under its first lease.
function th.lease_plain(at, token, until_ms, lease_ms, worker, now)
  call('HSET', at, 'state', 'active', 'attempt', '1', 'updated_ms', now, 'timeout_ms', lease_ms, 'lease_token', token,
       'lock_until_ms', until_ms, 'th_worker', worker, 'th_att', '1')
end
