-- Writing what schedules_read describes.

-- Let the sorted sets have a row.
function th.list_schedule(row)
  for at, member in pairs(row.sets) do call('ZADD', safe_key(HOME, at, 'zset'), '0', member) end
end

function th.put_schedule(name, value)
  call('HSET', safe_key(HOME, 'rows', 'hash'), name, value)
  th.list_schedule(th.read_schedule(name, value))
end

function th.remove_schedule(name, row)
  call('HDEL', safe_key(HOME, 'rows', 'hash'), name)
  for at, member in pairs(row.sets) do call('ZREM', safe_key(HOME, at, 'zset'), member) end
end
