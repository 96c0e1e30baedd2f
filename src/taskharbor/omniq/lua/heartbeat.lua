-- Heartbeat. In: mark, id, token. Out: lock_until_ms. The lease then ends a whole timeout from now, or when it would
-- have ended anyway: frequent heartbeats do not make it longer. A lease that is over, but was not reaped, is renewed.
even_if_full()
local _, id, token = unpack(ARGS, 4)
local job, code = held(id, token)
if not job then return refuse(code) end
local timeout = tonumber(call('HGET', job_key(q, id), 'timeout_ms') or 0) or 0
if timeout <= 0 then timeout = 60000 end
local lock = n(max(tonumber(call('ZSCORE', safe_key(q, 'active'), id)), th.now + timeout))
call('ZADD', safe_key(q, 'active'), lock, id)
write(q, id, {'lock_until_ms', lock, 'updated_ms', n(th.now)})
return lock
