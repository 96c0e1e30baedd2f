-- The same as reserve.lua, for one queue in whose line stand plain jobs only, and where nothing is to be moved into it first.
-- If that is not so: SLOW, and nothing has changed.
-- without: 30_record 50_lanes 60_flows 70_ends 80_store 90_take 95_fence 97_find 98_tend
local args = cmsgpack.unpack(ARGV[1])
th.begin(args[1], args[2], args[3])
local q, tokens, now, wait = args[4][1], args[8], n(args[1]), key(args[4][1], 'wait')
if call('EXISTS', key(q, 'paused'), key(q, 'th:prio'), key(q, 'groups:ready')) > 0
   or call('ZRANGEBYSCORE', key(q, 'delayed'), '-inf', now, 'LIMIT', 0, 1)[1]
   or call('ZRANGEBYSCORE', key(q, 'active'), '-inf', now, 'LIMIT', 0, 1)[1] then
  return 'SLOW'
end
local ids, values = call('LPOP', wait, args[6]) or {}, {}
for index, id in ipairs(ids) do
  values[index] = th.plain_values(q, id)
  if not values[index] then
    for back = #ids, 1, -1 do call('LPUSH', wait, ids[back]) end
    return 'SLOW'
  end
end

local over, lease, granted, active = n(args[1] + args[5]), n(args[5]), {}, {}
for index, id in ipairs(ids) do
  th.lease_plain(q, id, values[index], tokens[index], over, lease, args[7], now)
  th.book(q, id, 'active')
  granted[index] = {id, tokens[index], values[index]}
  active[2 * index - 1] = over
  active[2 * index] = id
end
if #ids > 0 then
  many('ZADD', key(q, 'active'), active)
  call('SET', key(q, 'lane:rr'), '0')
  th.stamp(q, 'reserve')
  if not th.cluster then call('ZADD', QUEUES, now, q) end
end
th.finish()
return {{q, #ids < args[6] and (call('GET', key(q, 'th:seq')) or '0'), granted}}
