-- now, cluster, home, queues, lease in ms, limit, worker, tokens → like reserve.lua for one queue in whose line stand plain
-- jobs only, and where nothing is to be moved into it first: each job as its values (see 45_plain_jobs) and its id, in the order
-- of the tokens. If that is not so: SLOW, and nothing has changed.
-- without: 12_locations 13_locate 16_id_pages 20_bookkeeping 25_key_repair 26_id_pages_walk 30_records 40_groups 46_plain_acks 50_placement 60_flows 70_terminal 80_store 90_reserve 95_fence 97_read 98_housekeeping 99_sweep
local args = cmsgpack.unpack(ARGV[1])
even_if_full()
local q, limit, worker, tokens = args[4][1], args[6], args[7], args[8]
th.now = args[1]
local now, wait, active = n(th.now), key(q, 'wait'), key(q, 'active')
if call('EXISTS', key(q, 'paused'), key(q, 'th:prio'), key(q, 'groups:ready')) > 0 or fell_due(q, now) then return 'SLOW' end
local ids = try('LRANGE', wait, 0, n(limit - 1))
if not ids then return 'SLOW' end
local marks = call('MGET', key(q, 'lane:rr'), key(q, 'th:seq'))
local granted, at, seen, prefix = {}, {}, {}, job_key(q, '')
for index, id in ipairs(ids) do
  at[index] = prefix .. id
  local values = not seen[id] and th.plain_values(at[index])
  if not values or (values[6] or '') ~= '' then return 'SLOW' end      -- one of a group, put here by others, takes a slot
  granted[index], seen[id] = values, true
end

if #ids > 0 then
  local over, lease = n(th.now + args[5]), n(args[5])
  call('LTRIM', wait, #ids, -1)
  many('ZADD', active, with_score(over, ids))
  for index, values in ipairs(granted) do
    th.lease_plain(at[index], tokens[index], over, lease, worker, now)
    values[#values + 1] = ids[index]
  end
  if marks[1] ~= '0' then call('SET', key(q, 'lane:rr'), '0') end
  quick_index(q, ids, 'wait', 'active', with_score(now, ids))
  quick_stats(q, now, 'reserve')
end
return {#ids < limit and n(finite(marks[2]) or 0), granted}
