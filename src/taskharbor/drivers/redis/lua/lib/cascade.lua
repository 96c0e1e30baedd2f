-- What a cancel or a requeue of a job means for those behind it in its flow. Behind a cancelled job, what is blocked is cancelled too;
-- behind another one, what was cancelled in this way comes back. Both are messages (lib/60_flows.lua):
--
--   stopped(dependent, dependency, flow, how)   the dependency is cancelled. `how` is "stop"; "note": the dependent is only to know it;
--                                               "heal": this may be known
--   resumed(dependent, dependency, flow)        it is cancelled no longer
--   unstopped(dependent, dependency, flow)      it is gone
--
-- `th:stopped:<id>` of a dependent holds its dependencies, each with `c` while it is cancelled, and with the number of the message that
-- said so: an older one that was overtaken is ignored. A script takes at most MOST jobs along: those whose dependents are still to
-- follow go into `th:followed` of their queue with the moment of the call, and a prune goes on with them as of that moment.

do      -- a script may have 200 locals

local WITH_IT = 'a job that it depends on was cancelled'
local MOST = 1000
local ahead, followed = {}, 0

local function stopped_key(q, id)
  return safe_key(q, 'th:stopped:' .. id, 'hash')
end

-- Returns the dependent, if it belongs to the flow and the message is news.
local function note_stop(q, id, dependency, flow, mark)
  local job = th.load(q, id)
  if not job or job.th_flow ~= flow then return nil end
  local at, number = stopped_key(q, id), th.number or 0
  local last = tonumber(string.sub(call('HGET', at, dependency) or 'r0', 2)) or 0
  if th.number and last >= number then return nil end
  if mark == 'c' or last > 0 or th.number then
    call('HSET', at, dependency, mark .. n(number))
  else
    call('HDEL', at, dependency)
  end
  return job
end

-- Whether a dependency is cancelled: this one, or any.
function th.is_stranded(q, id, dependency)
  local at = stopped_key(q, id)
  for _, mark in ipairs(dependency and {call('HGET', at, dependency) or ''} or call('HVALS', at)) do
    if string.sub(mark, 1, 1) == 'c' then return true end
  end
  return false
end

-- The job was cancelled or requeued at this moment: what is behind it follows, before the script ends.
function th.follow(q, id)
  ahead[#ahead + 1] = {q, id, th.now}
end

-- Cancel a job that can never run.
function th.strand(q, id, job)
  th.cancelled(q, id, job, {'th_reason', WITH_IT})
  followed = followed + 1
  th.follow(q, id)
end

-- A finished job is to run again: blocked by its open dependencies, or in the line.
function th.run_again(q, id, job, run_at, fields)
  add(fields, 'th_reason', '', 'th_fin', '')
  th.clear_lease(fields, job)
  th.remove(q, id, job)
  if job.state == 'cancelled' then th.reopen(q, id, job) end
  if job.th_deps and th.link(q, id, job, 'free') > 0 then
    add(fields, 'state', 'blocked', 'due_ms', run_at and n(run_at) or '', 'updated_ms', n(th.now))
    write(q, id, fields)
    block(q, id)
  else
    th.place(q, id, job, run_at, fields)
  end
  if job.th_dep or job.th_flow then watch(q, id, job.th_flow) end
end

function receive.stopped(q, id, dependency, flow, how)
  local is_known = string.sub(call('HGET', stopped_key(q, id), dependency) or '', 1, 1) == 'c'
  if how == 'heal' and is_known then return end      -- a person requeued the dependent alone: it waits
  if is_known and not th.cluster and call('HGET', job_key(q, id), 'state') ~= 'blocked' then return end     -- see tell
  local job = note_stop(q, id, dependency, flow, 'c')
  if job and how ~= 'note' and job.state == 'blocked' then th.strand(q, id, job) end
end

function receive.resumed(q, id, dependency, flow)
  if not th.cluster then      -- see tell
    local found = try('HMGET', job_key(q, id), 'state', 'th_flow')
    if found and found[1] ~= 'cancelled' and found[2] == flow then
      call('HDEL', stopped_key(q, id), dependency)
      return
    end
  end
  local job = note_stop(q, id, dependency, flow, 'r')
  if job and job.state == 'cancelled' and call('HGET', job_key(q, id), 'th_reason') == WITH_IT and not th.is_stranded(q, id) then
    th.run_again(q, id, job, tonumber(job.due_ms), {})
    followed = followed + 1
    th.follow(q, id)
  end
end

function receive.unstopped(q, id, dependency, flow)
  note_stop(q, id, dependency, flow, 'r')
end

-- Returns false if the script may take along no more dependents. Those that an earlier slice took along get the message again: that has to
-- cost little, since a job may have tens of thousands of dependents.
local function tell(q, id)
  local found = try('HMGET', job_key(q, id), 'state', 'th_flow', 'th_dep')
  if not found or not found[2] or not found[3] then return true end
  if followed >= MOST then return false end
  local kind = found[1] == 'cancelled' and 'stopped' or 'resumed'
  for _, dependent in ipairs(th.dependents(q, id)) do
    if followed >= MOST then return false end
    send(dependent[3], kind, dependent[1], id, found[2], 'stop')
  end
  return true
end

-- Let follow what has to; returns how many jobs did.
function th.go_on()
  local index, now = 1, th.now
  while ahead[index] do
    local q, id, at = unpack(ahead[index])
    th.now = at
    if not tell(q, id) then call('ZADD', safe_key(q, 'th:followed'), n(at), id) end
    index = index + 1
  end
  ahead, th.now = {}, now
  return followed
end

local finish_others = th.finish
function th.finish()
  th.go_on()
  finish_others()
end

end
