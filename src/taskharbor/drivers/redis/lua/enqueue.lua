-- Store jobs of any kind (the array of a job: see 80_store).
-- planned: the client has planned a call with dependencies, and none of the jobs is known. If what it planned with no longer holds,
-- returns STALE and stores nothing; else OK. needed: {queue, id, whether its heir is gone} of the dependencies outside the call.
-- Not planned: returns for each job 0: stored, 1: its id is known, or the id of the job that has its idempotency key.
-- without: 90_reserve 95_fence 97_read 98_housekeeping 99_sweep
-- with: cascade
local planned, jobs, needed, flows = unpack(ARGS, 4)
unless_full()
if planned then
  if not th.plan_holds(th.jobs_here(jobs), needed) then return 'STALE' end
  th.store_everywhere(jobs, flows or nil)
  th.finish()
  return 'OK'
end

local known, mine, fresh, results = th.known_ids(jobs), {}, {}, {}
for index, job in ipairs(jobs) do
  local id, q, name = job[1], job[2], job[10]
  if known[id] then
    results[index] = 1
  elseif mine[id] then
    results[index] = mine[id]
  else
    local own_key = name and (q .. '\0' .. name)
    local other = name and (mine[own_key] or th.keyed(q, name))
    if other then
      results[index] = other
      mine[id] = other
    else
      results[index] = 0
      fresh[#fresh + 1] = job
      mine[id] = 1
      if name then mine[own_key] = id end
    end
  end
end
th.store(fresh, flows or nil)
th.finish()
return results
