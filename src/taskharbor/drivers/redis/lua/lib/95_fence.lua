-- The fence: whether a token may extend or settle a job at this moment. 0: it may. Else the refusal, in the order of the contract:
-- 1 unknown, 2 not inflight, 3 another token; a lease that has ended: its end in ms, or 4 if that is not known.

function th.fence(job, token)
  if not job then return 1 end
  local held, over = job.lease_token, job.lock_until_ms
  if job.state == 'wait' and job.th_xt then
    held, over = job.th_xt, job.th_xu
  elseif job.state ~= 'active' then
    return 2
  end
  if held ~= token then return 3 end
  over = finite(over) or 0
  if over > th.now then return 0 end
  return over > 1000 and over or 4
end

-- A lease that holds at this moment, though a client with a faster clock saw it expire: the job becomes active again.
function th.reactivate(q, id, job)
  if job.state == 'wait' then
    th.remove(q, id, job)
    th.restore_lease(q, id, job)
  end
end
