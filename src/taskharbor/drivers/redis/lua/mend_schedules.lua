-- Mend the sorted sets of schedules: rows that are missing there are put back, and members without a row are removed.
-- items: name, the sorted set in which it was found, or '', and its member there, of each, one after the other.
-- Returns how many there were.
-- needs: 10_keys 25_key_repair 28_utf8
-- with: schedules_read schedules_write
local items = unpack(ARGS, 4)
even_if_full()
for first = 1, #items, 3 do
  local name, at, member = items[first], items[first + 1], items[first + 2]
  local row = th.schedule(name)
  if at ~= '' then call('ZREM', safe_key(HOME, at, 'zset'), member) end
  if row then th.list_schedule(row) end
end
return #items / 3
