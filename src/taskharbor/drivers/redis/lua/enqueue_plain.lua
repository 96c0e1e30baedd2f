-- now, cluster, queue, jobs: plain ones, each id once, all values by turns (id, payload, type, timeout in ms or 0, max_attempts,
-- th_x or false, created_ms), their ids in order (false: they are) → OK: all are stored. SLOW, and nothing has changed: enqueue.lua is
-- to look at them. DUE: the same, because others are to be lined up first, or a key is to be mended.
-- without: 13_locate 18_omniq_index 20_bookkeeping 25_key_repair 26_id_pages_walk 28_utf8 30_records 40_groups 46_plain_acks 47_plain_leases 50_placement 60_flows 70_terminal 80_store 90_reserve 95_fence 97_read 98_housekeeping 99_sweep
local args = cmsgpack.unpack(ARGV[1])
unless_full()
local cluster, q, jobs = args[2], args[3], args[4]
local count, now, prefix, wait = #jobs / 7, n(args[1]), job_key(args[3], ''), key(args[3], 'wait')
local ids, at = {}, {}
for index = 1, count do
  local id = jobs[7 * index - 6]
  ids[index], at[index] = id, prefix .. id
end
local rising = args[5] or ids

local known = 0
for first = 1, count, 4000 do known = known + call('EXISTS', unpack(at, first, min(first + 3999, count))) end
if known > 0 then return 'SLOW' end

-- What can fail comes first: after it no key holds anything that it should not.
local bound = page_of(q, rising[1])
if bound == nil or fell_due(q, now) then return 'DUE' end
local notes = cluster or note_new(ids, q)
if not notes then return 'SLOW' end
local sto = redis.pcall('INCRBY', key(q, 'th:seq'), count == 1 and '1' or count)
local waiting = type(sto) == 'number' and try('RPUSH', wait, unpack(ids, 1, min(count, 4000)))
if not waiting then
  if type(sto) == 'number' then call('INCRBY', key(q, 'th:seq'), -count) end
  for where, some in pairs(cluster and {} or notes) do many('HDEL', where, some) end
  return 'DUE'
end
for first = 4001, count, 4000 do waiting = call('RPUSH', wait, unpack(ids, first, min(first + 3999, count))) end
sto = sto - count
if not cluster then call('ZADD', QUEUES, 'NX', now, q) end
add_ids(q, rising, bound)
for index = 1, count do
  local first = 7 * index - 6
  th.put_plain(at[index], ids[index], jobs[first + 1], jobs[first + 2], jobs[first + 3], jobs[first + 4], jobs[first + 5],
               jobs[first + 6], sto + index, now)
end
if INDEXED then note_ids('ZADD', key(q, 'idx:wait'), with_score(now, ids)) end
quick_stats(q, now, 'enqueue', waiting)
call('PUBLISH', key(q, WAKE), q)
return 'OK'
