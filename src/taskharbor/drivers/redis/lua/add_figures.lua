-- Add numbers to the figures of queues, and forget what is too old.
-- rows: name of an hour's hash (see figures.py), field and number of each, one after the other; oldest_ms: the moment before which figures
-- count no longer; oldest: the name before which all hashes are too old. Returns how many of those were deleted.
-- needs: 10_keys
local rows, oldest_ms, oldest = unpack(ARGS, 4)
even_if_full()
local MAX_FORGOTTEN = 1000
local hours, prefix = '{th:fig}:hours', '{th:fig}:at:'

-- Figures never stop a worker: anything else that another program wrote there is thrown away.
local function throw_away(at, ...)
  for _, kind in ipairs({...}) do
    if call('TYPE', at).ok == kind then return end
  end
  call('DEL', at)
end

throw_away(hours, 'zset', 'none')
for first = 1, #rows, 3 do
  local at, field, number = prefix .. rows[first], rows[first + 1], n(rows[first + 2])
  if type(redis.pcall('HINCRBY', at, field, number)) ~= 'number' then
    throw_away(at, 'hash')
    call('HSET', at, field, number)
  end
  call('ZADD', hours, '0', rows[first])
end
call('SET', '{th:fig}:oldest', n(oldest_ms))
local old = call('ZRANGEBYLEX', hours, '-', '(' .. oldest, 'LIMIT', 0, MAX_FORGOTTEN)
for _, name in ipairs(old) do
  call('DEL', prefix .. name)
  call('ZREM', hours, name)
end
return #old
