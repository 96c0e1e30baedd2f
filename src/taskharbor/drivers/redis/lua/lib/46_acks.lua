-- The acks of plain jobs.

-- Whether a token holds the job whose state, token and end of the lease were read.
local function holds(token, found)
  return found[1] == 'active' and found[2] == token and (tonumber(found[3]) or 0) > th.now
end

local function acked(at, token, result, now)
  local settled = 'a' .. token
  if result then
    call('HSET', at, 'state', 'completed', 'updated_ms', now, 'lease_token', '', 'lock_until_ms', '', 'th_st', settled,
         'th_res', result)
  else
    call('HSET', at, 'state', 'completed', 'updated_ms', now, 'lease_token', '', 'lock_until_ms', '', 'th_st', settled)
  end
end

-- The ack of a job that is plain and held by this token. Answers whether it was one; `freed` if it gave back a group's slot.
function th.plain_ack(q, id, token, result, now)
  local at = job_key(q, id)
  local found = call('HMGET', at, 'state', 'lease_token', 'lock_until_ms', 'th_f')
  local more = found[4]
  if not holds(token, found) or (more and more ~= '' and more ~= 'p') then return false end
  acked(at, token, result, now)
  if more == 'p' then
    local gid = call('HGET', at, 'gid')
    if gid and gid ~= '' then
      th.free(q, gid)
      return 'freed'
    end
  end
  return true
end

-- What was acked leaves the active ones for those that are done.
function th.plain_done(q, ids, now)
  many('ZREM', key(q, 'active'), ids)
  many('ZADD', key(q, 'th:done'), with_score(now, ids))
end
