-- now, cluster, home, planned, jobs, needed, flows → for each job 0: stored, 1: its id is known, or the id that has its key.
-- A call with edges is planned by the client: what it planned with must still hold, else STALE and nothing is stored.
-- without: 90_reserve 95_fence 97_read 98_housekeeping 99_sweep
local args = cmsgpack.unpack(ARGV[1])
unless_full()
th.begin(args[1], args[2], args[3])
local jobs = args[5]
if args[4] then
  if not th.plan_holds(th.here(jobs), args[6]) then return 'STALE' end
  th.spread(jobs, args[7] or nil)
  th.finish()
  return 'OK'
end

local known, mine, fresh, answers = th.known_ids(jobs), {}, {}, {}
for index, job in ipairs(jobs) do
  local id, q, name = job[1], job[2], job[10]
  if known[id] then
    answers[index] = 1
  elseif mine[id] then
    answers[index] = mine[id]
  else
    local slot = name and (q .. '\0' .. name)
    local other = name and (mine[slot] or th.keyed(q, name))
    if other then
      answers[index] = other
      mine[id] = other
    else
      answers[index] = 0
      fresh[#fresh + 1] = job
      mine[id] = 1
      if name then mine[slot] = id end
    end
  end
end
th.store(fresh, args[7] or nil)
th.finish()
return answers
