-- Plain jobs: ours, without edges, run, key, priority or history. Nearly every job is one, and the scripts that see nothing
-- else (take.lua, ack.lua) bring nothing else. What they do for many jobs is written for all of them at once.

local PLAIN = 11       -- values tell all about a plain job that nobody has reserved yet; the first of READ in 90_take

-- Those values, if the job is plain and may run; else nil.
function th.plain_values(q, id)
  local v = call('HMGET', job_key(q, id), 'payload', 'th_type', 'state', 'attempt', 'th_sto', 'th_f', 'gid', 'due_ms',
                 'created_ms', 'th_x', 'th_max')
  if v[3] ~= 'wait' or not v[1] or not v[5] or v[4] ~= '0' or not v[2] or v[2] == '' or (v[6] and v[6] ~= '')
     or (v[11] and not tonumber(v[11])) then
    return nil
  end
  local due = v[8]
  if due and due ~= '' and not ((tonumber(due) or th.now + 1) <= th.now) then return nil end
  return v
end

-- Put a plain job under its first lease.
function th.lease_plain(q, id, v, token, until_ms, lease_ms, worker, now)
  v[4] = '1'
  call('HSET', job_key(q, id), 'state', 'active', 'attempt', '1', 'lock_until_ms', until_ms, 'lease_token', token,
       'timeout_ms', lease_ms, 'updated_ms', now, 'th_worker', worker, 'th_att', '1')
end

local plain = {}      -- queue → ids that were acked

-- The ack of a plain job that is held by this token. Answers whether it was one.
function th.plain_ack(q, id, token, result)
  local at = job_key(q, id)
  local found = call('HMGET', at, 'state', 'lease_token', 'lock_until_ms', 'th_f', 'th_sto', 'gid')
  if found[1] ~= 'active' or found[2] ~= token or (found[4] and found[4] ~= '') or not found[5]
     or (tonumber(found[3]) or 0) <= th.now then
    return false
  end
  local now, settled = n(th.now), 'a' .. token
  if result then
    call('HSET', at, 'state', 'completed', 'updated_ms', now, 'th_fin', now, 'lease_token', '', 'lock_until_ms', '',
         'th_st', settled, 'th_res', result)
  else
    call('HSET', at, 'state', 'completed', 'updated_ms', now, 'th_fin', now, 'lease_token', '', 'lock_until_ms', '',
         'th_st', settled)
  end
  local ids = plain[q]
  if not ids then ids = {}; plain[q] = ids end
  ids[#ids + 1] = id
  th.book(q, id, false)
  if found[6] and found[6] ~= '' then th.free(q, found[6]) end
  return true
end

function th.flush_plain()
  for q, ids in pairs(plain) do
    local done, now = {}, n(th.now)
    for index, id in ipairs(ids) do
      done[2 * index - 1] = now
      done[2 * index] = id
    end
    many('ZREM', key(q, 'active'), ids)
    many('ZADD', key(q, 'th:done'), done)
    th.stamp(q, 'finish')
  end
end
