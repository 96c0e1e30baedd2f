-- Apply outcomes: {queue, id, token, kind, …}, where kind is
--   a  result or false, spawn or false, needed, flows, heir or false, its queue, trail
--   r  run_at or false, attempts, error, failed_at or false, error_class, fingerprint, trail
--   f  reason, attempts, failed_at or false, error, spawn or false, needed, flows, error_class, fingerprint, trail
--   c  reason, trail
-- An ack without spawn, heir and trail ends with its result.
-- A kind after a question mark is a probe: it is not applied, and returns 5 if it could be.
-- Returns for each 0: applied, now or before; 5: plan it again; any other number: why its lease was refused (see 95_fence).
-- without: 97_read 98_housekeeping 99_sweep
-- with: cascade
local outcomes = unpack(ARGS, 4)
even_if_full()

-- `th_st` is what a repeated outcome is known by; `th_f` = 1: the job is plain no longer.
local function settled_fields(outcome)
  return {'th_st', outcome[4] .. outcome[3], 'th_f', '1'}
end

-- A text that replaces a field unless it is empty.
local function add_given(fields, name, text)
  if text and text ~= '' then add(fields, name, text) end
end

local apply = {}

function apply.a(q, id, job, outcome)
  local fields = settled_fields(outcome)
  local spawn, heir = outcome[6], outcome[9]
  if outcome[5] then add(fields, 'th_res', outcome[5]) end
  if job.th_lost then add(fields, 'th_lost', '') end
  add_given(fields, 'th_trail', outcome[11])
  if heir then add(fields, 'th_heir', heir, 'th_heirq', outcome[10]) end
  local waiting = heir and th.dependents(q, id)     -- spawned jobs may depend on the job itself, and stay so
  th.done(q, id, job, fields, heir)
  local number = spawn and th.store_everywhere(spawn, outcome[8] or nil, heir and {q, id, heir})
  if number then write(q, id, {'th_heirn', n(number)}) end
  if heir then th.hand_over(q, id, waiting, heir, outcome[10]) end
end

function apply.r(q, id, job, outcome)
  local fields = settled_fields(outcome)
  local failures = th.counters(job)
  local attempts, attempt = outcome[6], whole(job.attempt)
  add_given(fields, 'last_error', outcome[7])
  add_given(fields, 'th_err', outcome[9])
  add_given(fields, 'th_fp', outcome[10])
  add_given(fields, 'th_trail', outcome[11])
  if outcome[8] then add(fields, 'last_error_ms', n(outcome[8])) end
  if attempts ~= failures then add(fields, 'th_lost', '') end
  add(fields, 'th_fail', n(attempts), 'th_att', n(attempt), 'max_attempts', th.shown_max(attempt, th.real_max(job), attempts))
  th.clear_lease(fields, job)
  th.remove(q, id, job)
  th.place(q, id, job, outcome[5] or nil, fields)
end

function apply.f(q, id, job, outcome)
  local fields = settled_fields(outcome)
  add(fields, 'th_reason', outcome[5], 'th_fail', n(outcome[6]), 'th_att', n(whole(job.attempt)), 'th_lost', '')
  if outcome[7] then add(fields, 'last_error_ms', n(outcome[7])) end
  add(fields, 'last_error', outcome[8] ~= '' and outcome[8] or outcome[5], 'th_err', outcome[12], 'th_fp', outcome[13])
  add_given(fields, 'th_trail', outcome[14])
  th.dead(q, id, job, fields)
  if outcome[9] then th.store_everywhere(outcome[9], outcome[11] or nil) end
end

function apply.c(q, id, job, outcome)
  local fields = settled_fields(outcome)
  add(fields, 'th_reason', outcome[5], 'last_error', outcome[5], 'th_lost', '')
  add_given(fields, 'th_trail', outcome[6])
  th.cancelled(q, id, job, fields)
  th.follow(q, id)
end

local function plan_holds(outcome)
  local spawn, needed = outcome[6], outcome[7]
  if outcome[4] == 'f' then spawn, needed = outcome[9], outcome[10] end
  if (outcome[4] ~= 'a' and outcome[4] ~= 'f') or not spawn then return true end
  return th.plan_holds(th.jobs_here(spawn), needed)
end

local now = n(th.now)
local results, plain = {}, {}     -- plain: queue → ids that were acked

-- Ack a job that is plain, or would be without its flow and its dependents. Returns whether it is one, leased with this token; else nothing
-- has changed.
local function quick_ack(q, id, token, result)
  local at = job_key(q, id)
  local found = try('HMGET', at, 'state', 'lease_token', 'lock_until_ms', 'th_f', 'gid', 'th_flow', 'th_dep')
  if not found or not holds_lease(token, found) or found[4] == '1' then return false end
  write_ack(at, token, result, now)
  if found[4] and found[4] ~= '' and found[5] and found[5] ~= '' then th.free_place(q, id, found[5]) end
  if found[4] == 'm' then
    th.close(q, id, {th_flow = found[6] or nil, th_dep = found[7] or nil}, th.DONE)
    if found[7] then th.release(q, id) end
  end
  local ids = plain[q]
  if not ids then ids = {}; plain[q] = ids end
  ids[#ids + 1] = id
  return true
end

for index, outcome in ipairs(outcomes) do
  local q, id, token, kind = outcome[1], outcome[2], outcome[3], outcome[4]
  if kind == 'a' and not outcome[6] and not outcome[9] and not outcome[11] and quick_ack(q, id, token, outcome[5]) then
    results[index] = 0
  else
    local is_probe = string.sub(kind, 1, 1) == '?'
    if is_probe then kind = string.sub(kind, 2) end
    local job = th.load(q, id)
    local refused = th.fence(job, token)
    if refused > 0 and job and job.th_st == kind .. token then
      refused = 0   -- the reply was lost: it was applied before
    elseif refused == 0 then
      if not is_probe and plan_holds(outcome) then
        th.reactivate(q, id, job)
        apply[kind](q, id, job, outcome)
      else
        refused = 5
      end
    end
    results[index] = refused
  end
end
for q, ids in pairs(plain) do
  many('ZREM', safe_key(q, 'active'), ids)
  many('ZADD', safe_key(q, 'th:done'), with_score(now, ids))
  for _, id in ipairs(ids) do th.index(q, id, false) end
  th.note_step(q, 'finish')
end
th.finish()
return results
