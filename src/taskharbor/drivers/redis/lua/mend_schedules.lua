-- Mend what others left of schedules: rows that are missing in the sorted sets, or in the index of one server; names and places without a row.
-- items: queue, name, and a place under which it was found among those that are due, or '', of each, one after the other.
-- Returns how many there were.
-- needs: 10_keys 25_key_repair 28_utf8
-- with: schedules_read schedules_write
local now, cluster, home, items = unpack(cmsgpack.unpack(ARGV[1]))
even_if_full()
for first = 1, #items, 3 do
  local q, name, found_at = items[first], items[first + 1], items[first + 2]
  local revision, place = th.schedule(q, name)
  if found_at ~= '' and found_at ~= place then call('ZREM', safe_key(q, 'th:schedules:due', 'zset'), found_at) end
  local entry, noted
  if not cluster then entry, noted = th.schedule_entry(name) end
  if revision then
    call('ZADD', safe_key(q, 'th:schedules:names', 'zset'), '0', name)
    if place then call('ZADD', safe_key(q, 'th:schedules:due', 'zset'), '0', place) end
    if not cluster and not (noted and th.schedule(noted, name)) then th.set_schedule_entry(name, name .. '\n' .. q .. '\n') end
  else
    call('ZREM', safe_key(q, 'th:schedules:names', 'zset'), name)
    if noted == q then th.set_schedule_entry(name, false) end
  end
end
return #items / 3
