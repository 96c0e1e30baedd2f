-- cluster, jobs (id, queue or false), keys (queue, key) → for each job its queue, state, heir, the heir's queue and
-- th_deps, or false; for each key the id that has it, or false. What a client plans edges with. The queue of a job is where
-- it is looked for if nobody noted another. On a Cluster the state may be `alias`: the id is known as its heir; and `under
-- way`: the heir is in a message that nobody has delivered yet.
-- without: 95_fence 98_housekeeping 99_sweep
local args = cmsgpack.unpack(ARGV[1])
th.begin(0, args[1])
local jobs, keyed = {}, {}
for index, item in ipairs(args[2]) do
  local id, q = item[1], not th.cluster and noted_queue(item[1])
  if not q or call('EXISTS', job_key(q, id)) == 0 then q = item[2] end
  local found = q and call('HMGET', job_key(q, id), 'state', 'th_heir', 'th_heirq', 'th_deps', 'payload', 'th_heirn')
  if found and (found[1] or found[5]) then
    local heir, heir_q = found[2], found[3]
    if heir and heir ~= '' and not th.cluster and call('EXISTS', job_key(heir_q or q, heir)) == 0 then heir = false end
    local state = found[1] or ''
    if th.cluster and heir and heir ~= '' and found[6] and call('ZCOUNT', key(q, 'th:outbox'), found[6], found[6]) > 0 then
      state = 'under way'
    end
    jobs[index] = {q, state, heir or '', heir_q or '', found[4] or ''}
  else
    local other = th.cluster and q and call('HGET', key(q, 'th:alias'), id)
    jobs[index] = other and {q, 'alias', other, q, ''} or false
  end
end
for index, item in ipairs(args[3]) do keyed[index] = th.keyed(item[1], item[2]) or false end
return {jobs, keyed}
