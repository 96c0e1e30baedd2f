-- now, cluster, home, acks: all values by turns (queue, id, token, result or false) → how many of them, from the first on,
-- were of plain jobs and are applied. The rest is for settle.lua.
-- without: 30_record 50_lanes 60_flows 70_ends 80_store 90_take 95_fence 97_find 98_tend
local args = cmsgpack.unpack(ARGV[1])
even_if_full()
th.begin(args[1], args[2], args[3])
local now, applied, queues, freed, acks = n(th.now), 0, {}, {}, args[4]
for first = 1, #acks, 4 do
  local q, id = acks[first], acks[first + 1]
  local answer = th.plain_ack(q, id, acks[first + 2], acks[first + 3], now)
  if not answer then break end
  if answer == 'freed' then freed[q] = true end
  local ids = queues[q]
  if not ids then ids = {}; queues[q] = ids end
  ids[#ids + 1] = id
  applied = applied + 1
end
for q, ids in pairs(queues) do
  th.plain_done(q, ids, now)
  quick_index(q, ids, 'active')
  if freed[q] then whole_stats(q, now, 0, {finish = true}) else quick_stats(q, now, 'finish') end
end
th.finish()
return applied
