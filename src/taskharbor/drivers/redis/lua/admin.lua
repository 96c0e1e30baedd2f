-- Requeue, cancel or delete jobs.
-- operation: requeue, cancel or delete; jobs: {id, queue or false}, with {deliveries, edits, finished_at in ms or 0} as third item if the
-- job has to be as it was read; run_at: ms or false; reset_attempts; reason: of a cancel.
-- Returns for each job 0: done, 1: no such job, else text: `changed` since it was read, the state that the operation does not take, or
-- `needed N`: N unfinished jobs depend on it. A call that had to search long lists stops early, and returns results only for the jobs
-- it came to.
-- without: 99_sweep
-- with: cascade
local operation, jobs, run_at, reset_attempts, reason = unpack(ARGS, 4)
even_if_full()
run_at = run_at or nil

-- The state in the contract's words.
local function name_of(job)
  local state, now = job.state or '', th.now
  local function ahead(moment) return moment and (tonumber(moment) or 0) > now end
  if state == 'active' then return ahead(job.lock_until_ms) and 'inflight' or 'ready' end
  if state == 'wait' then return ahead(job.th_xu) and 'inflight' or 'ready' end
  if state == 'delayed' then return ahead(job.due_ms) and 'scheduled' or 'ready' end
  return ({completed = 'done', cancelled = 'cancelled', blocked = 'blocked'})[state] or 'dlq'
end

-- Numbers as records.py reads them: whole ones, 0 for anything else.
local function shown(value)
  return tonumber(string.match(value or '', '^%s*([+-]?%d+)%s*$')) or 0
end

local function bounded(number)
  return min(max(number, 0), 2147483647)
end

-- When clients read that the job ended. A foreign client may have ended it, or revived it, and leaves `th_fin` as it was.
local LAST_MS = 253402300799999
local LIVE = {wait = true, active = true, delayed = true, blocked = true}
local function finished_at(q, id, job)
  local state = job.state or ''
  if LIVE[state] then return 0 end
  local at = shown(job.th_fin)
  if state == 'completed' or state == 'failed' then
    at = max(at, shown(call('HGET', job_key(q, id), 'updated_ms') or ''))
  end
  return at > 0 and at <= LAST_MS and at or 0
end

-- Whether clients read the job as it was seen.
local function is_as(seen, q, id, job)
  local attempt, last = shown(job.attempt), shown(job.th_att)
  local deliveries = attempt + shown(job.th_off) + (attempt < last and last or 0)
  return bounded(deliveries) == seen[1] and bounded(shown(job.th_ed)) == seen[2] and finished_at(q, id, job) == seen[3]
end

local operations = {}

function operations.requeue(q, id, job)
  local state = name_of(job)
  if state ~= 'dlq' and state ~= 'cancelled' then return state end
  local failures, attempt = th.counters(job), whole(job.attempt)
  if reset_attempts then failures = 0 end
  local fields = {'th_lost', '', 'th_note', ''}
  if is_number(job.th_fail) or reset_attempts then
    add(fields, 'th_fail', n(failures), 'th_att', n(attempt), 'max_attempts', th.shown_max(attempt, th.real_max(job), failures))
  end
  if attempt < whole(job.th_att) then add(fields, 'th_off', n(whole(job.th_off) + whole(job.th_att))) end
  if job.th_flow and not th.cluster then call('HDEL', flow_key(job.th_flow), '!') end
  if job.th_flow and th.cluster then
    call('DEL', key(q, 'th:flow!:' .. job.th_flow))
    post('@flow', 'resumed', {job.th_flow})
  end
  th.run_again(q, id, job, run_at, fields)
  th.follow(q, id)
  return 0
end

function operations.cancel(q, id, job)
  local state = name_of(job)
  if state == 'cancelled' then return 0 end
  if state == 'done' or state == 'dlq' then return state end
  th.cancelled(q, id, job, {'th_reason', reason})
  th.follow(q, id)
  return 0
end

function operations.delete(q, id, job)
  local needed = open_dependents(q, id)
  if needed > 0 then return needed end
  th.forget(q, id, job)
  return 0
end

local results = {}
for index, item in ipairs(jobs) do
  if th.searched >= 100000 then break end
  local id, seen = item[1], item[3]
  local q = item[2] or th.locate(id)
  local job = q and th.load(q, id)
  if not job then
    results[index] = 1
  elseif seen and not is_as(seen, q, id, job) then
    results[index] = 'changed'
  else
    local result = operations[operation](q, id, job)
    results[index] = type(result) == 'number' and result > 0 and 'needed ' .. result or result
  end
end
th.finish()
return results
