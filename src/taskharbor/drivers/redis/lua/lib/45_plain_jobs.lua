-- Plain jobs: ours, without edges, run, key, priority or history. Nearly every job is one, and the scripts that see nothing
-- else (enqueue_plain.lua, reserve_plain.lua, ack_plain.lua) bring nothing else. What they do for many jobs is written for all of them at once.
-- `th_f` tells: missing or empty for a plain job, `p` for one that has a group or a time as well, `m` for one that also
-- belongs to a run or is depended on (settle.lua), else it is none.
-- A field is found by walking the record, so those that are read most come first.

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
