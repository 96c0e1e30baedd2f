-- now, cluster, home, queues, worker, tokens to keep → how many leases of the worker were given back.
-- without: 80_store 95_fence 97_find 98_tend 99_sweep
local args = cmsgpack.unpack(ARGV[1])
even_if_full()
th.begin(args[1], args[2], args[3])
local kept, number = {}, 0
for _, token in ipairs(args[6]) do kept[token] = true end

-- Whether the lease is one that the driver granted to the worker. A foreign client leaves `th_att` and the name of an
-- earlier worker as they are; a consumer of `taskharbor.omniq` has no name at all, where a nameless worker has an empty one.
local function is_its_own(q, id, job)
  return job.state == 'active' and (job.th_worker or '') == args[5] and whole(job.attempt) == whole(job.th_att)
         and (args[5] ~= '' or call('HGET', job_key(q, id), 'th_worker') ~= false)
end

for _, q in ipairs(args[4] or call('ZRANGE', QUEUES, 0, -1)) do
  local held = {}
  for _, id in ipairs(call('ZRANGEBYSCORE', sound(q, 'active'), '(' .. n(th.now), '+inf')) do
    local job = th.load(q, id)
    if job and is_its_own(q, id, job) and not kept[job.lease_token or ''] then
      held[#held + 1] = {id, job, whole(job.th_seq)}
    end
  end
  table.sort(held, function(a, b) return a[3] < b[3] end)
  for _, one in ipairs(held) do
    local id, job = one[1], one[2]
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
