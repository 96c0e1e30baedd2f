-- Acks of plain jobs (see 45_plain_jobs), the most frequent outcome.
-- acks: queue, id, token, result or false of each, one after the other.
-- Returns how many of them, from the first on, were acks of plain jobs and are applied. settle.lua does the rest.
-- needs: 10_keys 15_omniq_stats 18_omniq_index 20_bookkeeping 25_key_repair 40_groups 46_plain_acks
local acks = unpack(ARGS, 4)
even_if_full()
local count, queues, at, groups = 0, {}, {}, {}
local now = n(th.now)

-- Everything is read before anything is written. at: the keys of the records in order, and each of these keys → true: an id that comes
-- twice is left to settle.lua.
for first = 1, #acks, 4 do
  local q, id, record = acks[first], acks[first + 1], job_key(acks[first], acks[first + 1])
  local found = not at[record] and try('HMGET', record, 'state', 'lease_token', 'lock_until_ms', 'th_f')
  local more = found and found[4] or ''
  if not found or not holds_lease(acks[first + 2], found) or (more ~= '' and more ~= 'p') then break end
  local mine = queues[q]
  if not mine then mine = {ids = {}}; queues[q] = mine end
  mine.ids[#mine.ids + 1] = id
  count = count + 1
  at[count], at[record] = record, true
  groups[count] = more == 'p' and call('HGET', record, 'gid')
end
for q, mine in pairs(queues) do
  mine.active = try('ZCARD', key(q, 'active'))
  if not mine.active or not try('ZCARD', key(q, 'th:done')) then return 0 end
end

for q, mine in pairs(queues) do
  mine.active = mine.active - many('ZREM', key(q, 'active'), mine.ids)
  many('ZADD', key(q, 'th:done'), with_score(now, mine.ids))
end
for index = 1, count do
  local first = 4 * index - 3
  write_ack(at[index], acks[first + 2], acks[first + 3], now)
  local gid = groups[index]
  if gid and gid ~= '' then
    th.free_place(acks[first], acks[first + 1], gid)
    queues[acks[first]].freed = true
  end
end
for q, mine in pairs(queues) do
  index_plain(q, mine.ids, 'active')
  if mine.freed then write_stats(q, now, 0, {finish = true}) else stats_plain(q, now, 'finish', mine.active) end
end
th.finish()
return count
