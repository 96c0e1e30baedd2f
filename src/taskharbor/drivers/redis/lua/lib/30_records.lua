-- Records: reading and writing a job's hash, and the numbers that follow from it. See docs/driver-redis.md, "Counting".

local FIELDS = {
  'state', 'id', 'gid', 'lease_token', 'lock_until_ms', 'attempt', 'due_ms', 'th_sto', 'th_at', 'th_seq', 'th_pri',
  'th_flow', 'th_deps', 'th_dep', 'th_max', 'th_fail', 'th_att', 'th_off', 'th_lost', 'th_xt', 'th_xu', 'th_st',
  'th_key', 'th_fin', 'max_attempts', 'th_worker', 'th_heir', 'th_la', 'th_keep', 'th_ed', 'th_memo',
}
local KNOWN = {wait = true, active = true, delayed = true, failed = true, completed = true, blocked = true,
               cancelled = true}

-- A record as a table by field; missing fields are nil. nil if there is no record, with `true` as second result if its key holds
-- something else.
function th.load(q, id)
  local values = try('HMGET', job_key(q, id), unpack(FIELDS))
  if not values then return nil, true end
  local job, any = {}, false
  for index, name in ipairs(FIELDS) do
    local value = values[index]
    if value and value ~= '' then job[name] = value; any = true end
  end
  if not any and call('EXISTS', job_key(q, id)) == 0 then return nil end
  job.pri = finite(job.th_pri) or 0
  job.th_seq = job.th_seq or job.th_sto
  return job
end

-- Write fields, given as names and values by turns.
local function write(q, id, fields)
  many('HSET', job_key(q, id), fields)
end

local function add(fields, ...)
  local size, more = #fields, {...}
  for index = 1, #more do fields[size + index] = more[index] end
end

local function whole(value)
  return finite(value) or 0
end

-- The failures and deliveries of a job. Leases that foreign clients granted count as failures once they are over.
function th.counters(job)
  local attempt, last = whole(job.attempt), whole(job.th_att)
  local off, fail = whole(job.th_off), whole(job.th_fail)
  local abroad = job.state == 'active' and attempt ~= last and 1 or 0
  if attempt < last then return max(0, attempt - abroad), attempt + off + last end
  return fail + max(0, attempt - last - abroad), attempt + off
end

-- max_attempts as foreign clients see it while the job waits: the leases that it has left, each of which may fail.
function th.shown_max(attempt, real, failures)
  if real <= 0 then real = DEFAULT_MAX end
  return n(attempt + max(1, real - failures))
end

function th.real_max(job)
  return whole(job.th_max or (not job.th_sto and job.max_attempts) or 0)
end

-- Until when a finished job is kept by its own `keep_for`, which `th_keep` holds in microseconds; nil: as long as any other.
local MAX_KEPT = 3.2e17     -- microseconds: more than ten years
function th.kept_until(keep, finished)
  local micros = tonumber(string.match(keep or '', '^%d+$'))
  return micros and micros <= MAX_KEPT and finished + math.ceil(micros / 1000) or nil
end

local function is_number(value)
  return not value or value == '' or finite(value) ~= nil
end

-- Damage by another program that would stop a worker; nil if there is none.
function th.damage(id, job, payload, type)
  if not KNOWN[job.state or ''] then return 'unknown state' end
  if not payload then return 'payload is missing' end
  if job.th_sto and (not type or type == '') then return 'type is missing' end
  if type and not is_text(type) then return 'type is not UTF-8' end
  if not th.trusting and not is_text(id) then return 'id is not UTF-8' end     -- clients of OmniQ take any bytes
  for _, name in ipairs({'attempt', 'th_fail', 'th_max', 'th_lost', 'th_att', 'th_off'}) do
    if not is_number(job[name]) then return name .. ' is not a number' end
  end
  return nil
end
