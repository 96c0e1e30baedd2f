-- What the scripts of taskharbor.omniq share, after the driver's library fragments.
-- `home` is the queue, on one server too; `now` is 0: by the server's clock.
-- without: 99_sweep

local q = th.home
if th.now == 0 then
  local time = call('TIME')
  th.now = time[1] * 1000 + floor(time[2] / 1000)
end
th.trusting = true   -- a job in a list may run: the client that put it there decided so

local function refuse(code)
  return redis.error_reply('OMNIQ ' .. code)
end

-- The reply of this very call, if it was made before: its reply was lost, and it was sent again.
local function earlier_reply(id, mark)
  local earlier = call('HGET', job_key(q, id), 'th_call')
  if earlier and string.sub(earlier, 1, #mark) == mark then return string.sub(earlier, #mark + 2) end
  return nil
end

local function store_reply(fields, mark, text)
  add(fields, 'th_call', mark .. ' ' .. text)
end

-- The job under this lease, or nil and the code of the refusal.
local function held(id, token)
  if token == '' then return nil, 'TOKEN_REQUIRED' end
  local job = th.load(q, id)
  if not job or not call('ZSCORE', safe_key(q, 'active'), id) then return nil, 'NOT_ACTIVE' end
  if job.lease_token ~= token then return nil, 'TOKEN_MISMATCH' end
  job.state = 'active'   -- whatever another program wrote there
  return job
end

-- The counters once the lease is over, with `failed` more failures. See docs/driver-redis.md, "Counting".
local function count(job, fields, failed)
  local failures, deliveries = th.counters(job)
  local attempt = whole(job.attempt)
  add(fields, 'th_att', n(attempt), 'th_fail', n(failures + failed), 'th_off', n(deliveries - attempt), 'th_f', '1')
  if not job.th_max and not job.th_sto then add(fields, 'th_max', n(whole(job.max_attempts))) end
end

local function is_last(job)
  return whole(job.attempt) >= max(1, whole(job.max_attempts))
end

-- The reply to a call about several ids: each with what became of it.
local function for_each(ids, change)
  local results = {}
  for _, id in ipairs(ids) do add(results, id, change(id)) end
  th.finish()
  return results
end

-- To the end of its list. The order is that of entering; due jobs enter by an operation of their own.
local function append(id, job, fields)
  local seq = th.next_arrival(q)
  add(fields, 'state', 'wait', 'th_at', n(th.now), 'th_seq', n(seq), 'updated_ms', n(th.now))
  write(q, id, fields)
  th.push_ready(q, id, job.gid, job.pri, th.now, seq)
  th.hint(q)
end

local function delay(id, due, fields)
  add(fields, 'state', 'delayed', 'due_ms', n(due), 'th_at', n(due), 'th_seq', n(th.next_arrival(q)), 'updated_ms', n(th.now))
  write(q, id, fields)
  call('ZADD', safe_key(q, 'delayed'), n(due), id)
  th.index(q, id, 'delayed')
end
