-- Reap leases that are over. In: how many at most. Out: how many were. A job of an OmniQ client is retried or fails, as
-- by ack_fail, with a reason; one of TaskHarbor's becomes ready again, and its worker decides what that means.
even_if_full()
local REASON = 'LeaseExpired: the lease ended without an ack'
local over = call('ZRANGEBYSCORE', safe_key(q, 'active'), '-inf', n(th.now), 'WITHSCORES', 'LIMIT', 0, ARGS[4])
for index = 1, #over, 2 do
  local id, at = over[index], tonumber(over[index + 1])
  local job = th.load(q, id)
  if not job or call('HEXISTS', job_key(q, id), 'payload') == 0 then
    call('ZREM', safe_key(q, 'active'), id)
    th.free_place(q, id, job and job.gid)
    if job then th.forget(q, id, job) else th.index(q, id, false) end
  elseif job.th_sto then
    th.expire_one(q, id, job, at)
  else
    job.state = 'active'
    local fields = {'last_error', REASON, 'last_error_ms', n(th.now), 'th_st', '',
                    'th_lost', n(whole(job.th_lost) + 1)}
    count(job, fields, 0)
    if is_last(job) then
      add(fields, 'failed_ms', n(th.now), 'th_reason', REASON)
      th.dead(q, id, job, fields)
    else
      th.remove(q, id, job)
      th.clear_lease(fields, job)
      delay(id, th.now + whole(call('HGET', job_key(q, id), 'backoff_ms')), fields)
    end
  end
end
th.finish()
return #over / 2
