-- now, cluster, home, worker, tokens to keep, leases (queue, id) → how many of them were given back: those that the worker
-- still holds.
-- without: 80_store 95_fence 97_read 98_housekeeping 99_sweep
local args = cmsgpack.unpack(ARGV[1])
even_if_full()
th.begin(args[1], args[2], args[3])
local kept, number = {}, 0
for _, token in ipairs(args[5]) do kept[token] = true end
for _, lease in ipairs(args[6]) do
  local q, id = lease[1], lease[2]
  local job = th.lease_of(q, id, args[4], kept) and th.load(q, id)
  if job and whole(job.lock_until_ms) > th.now then
    local fields = {'th_lost', n(whole(job.th_lost) + 1),
                    'max_attempts', th.room(whole(job.attempt), th.real_max(job), (th.counters(job)))}
    th.no_lease(fields)
    th.leave(q, id, job)
    th.join(q, id, job, nil, fields)
    number = number + 1
  end
end
th.finish()
return number
