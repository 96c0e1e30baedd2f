-- Publish. In: mark, id, payload, max_attempts, timeout_ms, backoff_ms, due_ms or 0, gid or '', group_limit or 0.
-- Out: the id. A job that is alive stays as it is; an id whose job has ended begins anew, with nothing left of it.
unless_full()
local mark, id, payload, max_attempts, timeout_ms, backoff_ms, due, gid, limit = unpack(ARGS, 4)

local job = th.load(q, id)
if job then
  if call('HGET', job_key(q, id), 'th_pub') == mark then return id end   -- this very call, sent again
  local is_whole = call('HEXISTS', job_key(q, id), 'payload') == 1
  local lives = job.state == 'wait' or job.state == 'active' or job.state == 'delayed' or job.state == 'blocked'
  if is_whole and lives then return id end
  if th.open_dependents(q, id) > 0 then return refuse('NEEDED') end
  th.forget(q, id, job)
end

local now = n(th.now)
local fields = {
  'id', id, 'payload', payload, 'attempt', '0', 'max_attempts', n(max_attempts), 'timeout_ms', n(timeout_ms),
  'backoff_ms', n(backoff_ms), 'created_ms', now, 'queued_ms', now, 'lease_token', '', 'lock_until_ms', '',
  'th_pub', mark,
}
if gid ~= '' then
  add(fields, 'gid', gid)
  call('SETNX', key(q, 'has_groups'), '1')
  th.set_group_limit(q, gid, limit)
end
if due > th.now then
  delay(id, due, fields)
else
  append(id, {gid = gid ~= '' and gid or nil, pri = 0}, fields)
end
if not th.cluster then shared('ZADD', QUEUES, now, q) end
th.note_step(q, 'enqueue')
th.finish()
return id
