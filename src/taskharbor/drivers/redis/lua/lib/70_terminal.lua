-- How a job ends: done, dead, cancelled, or deleted. Each removes it from its list first (`th.remove`), and updates its flow, its
-- dependencies and its dependents. `fields` are written with the rest.

local KEPT = 100    -- completed jobs that OmniQ keeps

-- Trim `completed` as OmniQ does, but never a record that is alive again, and never one of ours: those move to `th:done`.
function th.trim_completed(q)
  local at = safe_key(q, 'completed')
  while call('LLEN', at) > KEPT do
    local id = call('RPOP', at)
    local job = th.load(q, id)
    if job and job.state == 'completed' then
      if job.th_sto then
        th.shelve(q, id, 'th:done', finite(job.th_fin) or th.now, job.th_keep)
        th.index(q, id, false)
      else
        th.forget(q, id, job)
      end
    end
  end
end

local function ended(q, id, job, state, fields)
  add(fields, 'state', state, 'updated_ms', n(th.now), 'th_fin', n(th.now))
  th.clear_lease(fields, job)
  write(q, id, fields)
  th.note_step(q, 'finish')
end

-- Done. A job of ours is kept for the retention; a foreign client's goes where its monitors look for it.
function th.done(q, id, job, fields, keep_dependents)
  th.remove(q, id, job)
  ended(q, id, job, 'completed', fields or {})
  if job.th_sto then
    th.shelve(q, id, 'th:done', th.now, job.th_keep)
    th.close(q, id, job, th.DONE)
  else
    call('LPUSH', safe_key(q, 'completed'), id)
    th.index(q, id, 'completed')
    th.trim_completed(q)
  end
  if job.th_dep and not keep_dependents then th.release(q, id) end
end

-- To the dead letter queue. No dependent is released: the job may be requeued.
function th.dead(q, id, job, fields)
  th.remove(q, id, job)
  ended(q, id, job, 'failed', fields or {})
  call('LPUSH', safe_key(q, 'failed'), id)
  th.index(q, id, 'failed')
  if job.th_flow then th.set_step(q, id, job.th_flow, th.DEAD) end
end

function th.cancelled(q, id, job, fields)
  th.remove(q, id, job)
  ended(q, id, job, 'cancelled', fields or {})
  th.shelve(q, id, 'th:cancelled', th.now, job.th_keep)
  th.close(q, id, job, th.CANCELLED)
end

-- How many jobs were put back into a list (`restored`) or set aside as damaged (`aside`) lately, for `taskharbor doctor`. The count
-- starts anew when a day has passed without either.
local DAY = 86400
function th.repairs(q, clock)
  local found = try('HMGET', key(q, 'th:mended'), 'at', 'restored', 'aside')
  if not found or clock - (finite(found[1]) or 0) > DAY then return 0, 0 end
  return finite(found[2]) or 0, finite(found[3]) or 0
end

function th.count_repairs(q, restored, aside)
  local clock = tonumber(call('TIME')[1])
  local earlier_restored, earlier_aside = th.repairs(q, clock)
  call('HSET', safe_key(q, 'th:mended', 'hash'), 'at', n(clock), 'restored', n(earlier_restored + restored),
       'aside', n(earlier_aside + aside))
end

-- A record that no worker can run, and that is in no list, goes to the dead letter queue. If its key holds something else, that is moved
-- out of the way, and a record that only says so takes its place.
function th.set_aside(q, id, damage)
  local fields = {'th_reason', 'damaged record: ' .. damage}
  local kind = kind_of(job_key(q, id))
  if kind ~= 'hash' then
    if kind ~= 'none' then move_aside(q, 'job:' .. id, kind) end
    add(fields, 'id', id, 'th_sto', '0', 'created_ms', n(th.now))
  end
  local flow = kind == 'hash' and call('HGET', job_key(q, id), 'th_flow')
  th.dead(q, id, {state = 'gone', th_flow = flow and flow ~= '' and flow or nil}, fields)
  th.count_repairs(q, 0, 1)
end

-- Delete a record and everything that is stored about it.
function th.forget(q, id, job)
  th.remove(q, id, job)
  if job.state == 'cancelled' and job.th_flow and job.th_dep and receive.unstopped then
    for _, dependent in ipairs(th.dependents(q, id)) do send(dependent[3], 'unstopped', dependent[1], id, job.th_flow) end
  end
  for _, found in ipairs(dependencies(job)) do send(found[2], 'unlink', found[1], id) end
  if job.th_key and call('HGET', safe_key(q, 'th:keys'), job.th_key) == id then call('HDEL', safe_key(q, 'th:keys'), job.th_key) end
  if job.th_flow then th.leave_flow(q, id, job.th_flow) end
  call('DEL', job_key(q, id), key(q, 'th:damaged:job:' .. id), after_key(q, id), key(q, 'th:open:' .. id),
       key(q, 'th:stopped:' .. id), key(q, 'th:memo:' .. id))
  safe_key(q, 'th:ids')
  remove_id(q, id)
  call('HDEL', safe_key(q, 'th:watched'), id)
  if th.cluster then
    if job.th_sto then post('@ids', 'gone', {id, q}) end
  elseif stored_queue(id) == q then
    call('HDEL', location_key(id), id)
  end
end
