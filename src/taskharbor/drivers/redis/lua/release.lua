-- Give back leases of a worker. keep: tokens that stay leased; leases: {queue, id}.
-- Returns how many were given back: those that the worker still holds.
-- without: 80_store 95_fence 97_read 98_housekeeping 99_sweep
local worker, keep, leases = unpack(ARGS, 4)
even_if_full()
local kept, number = {}, 0
for _, token in ipairs(keep) do kept[token] = true end
for _, lease in ipairs(leases) do
  local q, id = lease[1], lease[2]
  local job = th.lease_of(q, id, worker, kept) and th.load(q, id)
  if job and whole(job.lock_until_ms) > th.now then
    local fields = {'th_lost', n(whole(job.th_lost) + 1),
                    'max_attempts', th.shown_max(whole(job.attempt), th.real_max(job), (th.counters(job)))}
    th.clear_lease(fields, job)
    -- With the number of the delivery: a foreign client that reserves the job later does not clear it.
    add(fields, 'th_la', n(th.now) .. ':' .. n(whole(job.attempt)))
    th.remove(q, id, job)
    th.place(q, id, job, nil, fields)
    number = number + 1
  end
end
th.finish()
return number
