-- Reserve. In: the token of the lease to be granted. Out: PAUSED, EMPTY, or JOB, id, payload, lock_until_ms, attempt,
-- gid, token, max_attempts, how long the lease lasts. The same call sent again returns the same job: a key that
-- lives for a minute stores the job of a token.
even_if_full()
local token = ARGS[4]
local given_key = key(q, 'th:grant:' .. token)

local function reply(id)
  local v = call('HMGET', job_key(q, id), 'payload', 'lock_until_ms', 'attempt', 'gid', 'max_attempts', 'timeout_ms')
  return {'JOB', id, v[1], v[2], v[3], v[4] or '', token, n(max(1, whole(v[5]))), v[6]}
end

local given = call('GET', given_key)
if given and call('HGET', job_key(q, given), 'lease_token') == token then return reply(given) end
if call('EXISTS', key(q, 'paused')) == 1 then return {'PAUSED'} end

local taken = th.take(q, 1)
if #taken == 0 then
  th.finish()
  return {'EMPTY'}
end
local id = taken[1][1]
local lease = tonumber(call('HGET', job_key(q, id), 'timeout_ms') or 0) or 0
if lease <= 0 then lease = 60000 end
th.grant(q, taken, lease, '', {token})
call('HDEL', job_key(q, id), 'th_worker')   -- not even an empty name: no worker's release may give this lease back
local now = n(th.now)
call('HSETNX', job_key(q, id), 'first_started_ms', now)
call('HSET', job_key(q, id), 'last_started_ms', now)
call('SET', given_key, id, 'PX', 60000)
th.finish()
return reply(id)
