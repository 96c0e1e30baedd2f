-- What a client needs to plan a call with dependencies.
-- jobs: {id, the queue to look in if no location is stored}, or false; keys: {queue, idempotency key}, or false.
-- Returns for each job {queue, state, heir, the heir's queue, th_deps} or false, and for each key the id that has it, or false. On a
-- Cluster the state may be `alias` (the id stands for its heir) or `under way` (the heir is in a message not yet delivered).
-- without: 95_fence 98_housekeeping 99_sweep
local jobs, keys = unpack(ARGS, 4)
local found_jobs, found_keys = {}, {}
for index, item in ipairs(jobs or {}) do
  local id, q = item[1], not th.cluster and stored_queue(item[1])
  if not q or call('EXISTS', job_key(q, id)) == 0 then q = item[2] end
  local found = q and try('HMGET', job_key(q, id), 'state', 'th_heir', 'th_heirq', 'th_deps', 'payload', 'th_heirn')
  if found and (found[1] or found[5]) then
    local heir, heir_q = found[2], found[3]
    if heir and heir ~= '' and not th.cluster and call('EXISTS', job_key(heir_q or q, heir)) == 0 then heir = false end
    local state = found[1] or ''
    if th.cluster and heir and heir ~= '' and found[6] and call('ZCOUNT', key(q, 'th:outbox'), found[6], found[6]) > 0 then
      state = 'under way'
    end
    found_jobs[index] = {q, state, heir or '', heir_q or '', found[4] or ''}
  else
    local other = th.cluster and q and call('HGET', key(q, 'th:alias'), id)
    found_jobs[index] = other and {q, 'alias', other, q, ''} or false
  end
end
for index, item in ipairs(keys or {}) do found_keys[index] = th.keyed(item[1], item[2]) or false end
return {found_jobs, found_keys}
