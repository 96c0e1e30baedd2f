-- The fence: whether a token may extend or settle a job at this moment. 0: it may, else the number of the refusal, in
-- the order of the contract: 1 unknown, 2 not inflight, 3 another token, 4 expired.

function th.fence(job, token)
  if not job then return 1 end
  local held, over = job.lease_token, job.lock_until_ms
  if job.state == 'wait' and job.th_xt then
    held, over = job.th_xt, job.th_xu
  elseif job.state ~= 'active' then
    return 2
  end
  if held ~= token then return 3 end
  if (tonumber(over or 0) or 0) <= th.now then return 4 end
  return 0
end

-- Held at this moment, though somebody with a faster clock saw it expire, not long ago.
function th.held(q, id, job)
  if job.state == 'wait' then
    th.leave(q, id, job)
    th.hold_again(q, id, job)
  end
end
