-- Store plain jobs (see 45_plain_jobs) of one queue, each id once. Nearly every enqueue.
-- jobs: id, payload, type, timeout in ms or 0, max_attempts, th_x or false, created_ms of each, one after the other;
-- sorted_ids: the ids in order, or false: the jobs are in that order.
-- Returns OK: all are stored. SLOW: nothing has changed, enqueue.lua has to do it. DUE: the same, because due jobs come first or a
-- key has to be repaired.
-- needs: 10_keys 12_locations 15_omniq_stats 16_id_pages 45_plain_jobs
local q, jobs, sorted_ids = unpack(ARGS, 4)
unless_full()
local count, prefix, wait = #jobs / 7, job_key(q, ''), key(q, 'wait')
local now = n(th.now)
local ids, records = {}, {}     -- records: their keys
for index = 1, count do
  local id = jobs[7 * index - 6]
  ids[index], records[index] = id, prefix .. id
end
local rising = sorted_ids or ids

local known = 0
for first = 1, count, 4000 do known = known + call('EXISTS', unpack(records, first, min(first + 3999, count))) end
if known > 0 then return 'SLOW' end

-- What can fail comes first. Once it has succeeded, every key is known to hold a value of the right type, and the rest cannot fail.
local bound = page_of(q, rising[1])
if bound == nil or has_due(q, now) then return 'DUE' end
local locations = th.cluster or store_new_locations(ids, q)     -- on a Cluster the client has stored them
if not locations then return 'SLOW' end
local sto = redis.pcall('INCRBY', key(q, 'th:seq'), count == 1 and '1' or count)
local waiting = type(sto) == 'number' and try('RPUSH', wait, unpack(ids, 1, min(count, 4000)))
if not waiting then
  if type(sto) == 'number' then call('INCRBY', key(q, 'th:seq'), -count) end
  for where, some in pairs(th.cluster and {} or locations) do many('HDEL', where, some) end
  return 'DUE'
end
for first = 4001, count, 4000 do waiting = call('RPUSH', wait, unpack(ids, first, min(first + 3999, count))) end
sto = sto - count
if not th.cluster then shared('ZADD', QUEUES, 'NX', now, q) end
add_ids(q, rising, bound)
for index = 1, count do
  local first = 7 * index - 6
  th.put_plain(records[index], ids[index], jobs[first + 1], jobs[first + 2], jobs[first + 3], jobs[first + 4], jobs[first + 5],
               jobs[first + 6], sto + index, now)
end
if INDEXED then index_ids('ZADD', key(q, 'idx:wait'), with_score(now, ids)) end
stats_plain(q, now, 'enqueue', waiting)
call('PUBLISH', key(q, WAKE), n(sto + count) .. ' ' .. n(count))
return 'OK'
