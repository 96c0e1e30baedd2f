-- The first leases of plain jobs.

local PLAIN = 5       -- values describe a plain job that was never reserved; two more if it has `th_f`

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
       'lock_until_ms', until_ms, 'th_worker', worker, 'th_att', '1', 'th_began', now)
end
