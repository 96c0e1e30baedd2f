-- Plain jobs: stored by this driver, without dependencies, flow, key, priority or history. Nearly every job is plain. Three short
-- scripts see only plain jobs (enqueue_plain.lua, reserve_plain.lua, ack_plain.lua), and write for many jobs at once.
-- The field `th_f` says what a job is: missing or empty: plain; `p`: plain except for a group or a time; `m`: also belongs to a flow or
-- is depended on (settle.lua); anything else: not plain.
-- Redis finds a field by walking the record, so those that are read most come first.

local texts = {}      -- numbers that the jobs of a call share

local function number_text(number)
  local found = texts[number]
  if not found then found = n(number); texts[number] = found end
  return found
end

-- `timeout`: ms or 0; `limit`: max_attempts or 0; `extra`: th_x or false. `updated_ms` is the time at which it became ready.
function th.put_plain(at, id, payload, type, timeout, limit, extra, created, sto, now)
  timeout = timeout > 0 and number_text(timeout) or '60000'
  local shown = number_text(limit > 0 and limit or DEFAULT_MAX)
  if extra then
    call('HSET', at, 'state', 'wait', 'attempt', '0', 'payload', payload, 'th_type', type, 'th_max', number_text(limit),
         'created_ms', number_text(created), 'th_x', extra, 'updated_ms', now, 'timeout_ms', timeout, 'max_attempts', shown,
         'backoff_ms', '5000', 'id', id, 'th_sto', sto)
  elseif limit == 0 then
    call('HSET', at, 'state', 'wait', 'attempt', '0', 'payload', payload, 'th_type', type,
         'created_ms', number_text(created), 'updated_ms', now, 'timeout_ms', timeout, 'max_attempts', shown,
         'backoff_ms', '5000', 'id', id, 'th_sto', sto)
  else
    call('HSET', at, 'state', 'wait', 'attempt', '0', 'payload', payload, 'th_type', type, 'th_max', number_text(limit),
         'created_ms', number_text(created), 'updated_ms', now, 'timeout_ms', timeout, 'max_attempts', shown,
         'backoff_ms', '5000', 'id', id, 'th_sto', sto)
  end
end

-- Whether due or expired jobs come first, or a key holds something else: then a general script has to do it.
local function has_due(q, now)
  return try('ZCOUNT', key(q, 'delayed'), '-inf', now) ~= 0 or try('ZCOUNT', key(q, 'active'), '-inf', now) ~= 0
end
