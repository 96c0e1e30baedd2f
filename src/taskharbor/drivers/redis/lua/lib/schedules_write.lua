-- Writing what schedules_read describes.

-- Remove a row from its queue. `place`: as th.schedule returned it.
function th.remove_schedule(q, name, place)
  if place then call('ZREM', safe_key(q, 'th:schedules:due', 'zset'), place) end
  call('ZREM', safe_key(q, 'th:schedules:names', 'zset'), name)
  call('HDEL', safe_key(q, 'th:schedules', 'hash'), name)
end

-- Put a row into a queue. `old`: the place of the row that it replaces there.
function th.put_schedule(q, name, value, old)
  local _, place = th.read_schedule(name, value)
  local due = safe_key(q, 'th:schedules:due', 'zset')
  call('HSET', safe_key(q, 'th:schedules', 'hash'), name, value)
  call('ZADD', safe_key(q, 'th:schedules:names', 'zset'), '0', name)
  if old and old ~= place then call('ZREM', due, old) end
  if place then call('ZADD', due, '0', place) end
end

-- Let the index have this entry of a name and no other; false: none.
function th.set_schedule_entry(name, entry)
  local at = safe_key('th:schedules', 'names', 'zset')
  for _, other in ipairs(call('ZRANGEBYLEX', at, '[' .. name .. '\n', '(' .. name .. '\11')) do
    if other ~= entry then call('ZREM', at, other) end
  end
  if entry then call('ZADD', at, '0', entry) end
end
