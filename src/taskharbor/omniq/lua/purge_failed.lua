-- Delete failed jobs that failed before a moment, oldest first. In: the moment, how many at most. Out: how many were.
-- One that an unfinished job depends on stays.
even_if_full()
local before, most = unpack(ARGS, 4)
local at, back, gone = safe_key(q, 'failed'), 1, 0
while gone < most do
  local id = call('LINDEX', at, -back)
  if not id then break end
  local job = th.load(q, id)
  if not job or job.state ~= 'failed' then
    call('LREM', at, -1, id)
  else
    local times = call('HMGET', job_key(q, id), 'th_fin', 'failed_ms', 'updated_ms')
    if whole(times[1] or times[2] or times[3]) >= before then break end
    if th.open_dependents(q, id) > 0 then
      back = back + 1
    else
      th.take_from_tail(at, id)
      th.forget(q, id, job)
      gone = gone + 1
    end
  end
end
th.finish()
return gone
