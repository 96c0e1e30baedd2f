-- Store entries of the audit, each in place of the one with the same id, and forget the oldest.
-- entries: id and value of each, one after the other; a value is the moment in 18 digits, who, a line feed, the data (see audit.py).
-- before: what lies before this moment, in 18 digits, is too old; most: how many entries are forgotten at most. Returns how many were.
-- needs: 10_keys
local entries, before, most = unpack(ARGS, 4)
even_if_full()      -- operators make room on a full server: their entries are few and small, and must not stop them
local order, values = '{th:audit}:order', '{th:audit}:entries'

-- The audit never stops an operator: anything else that another program wrote there is thrown away.
for at, wanted in pairs({[order] = 'zset', [values] = 'hash'}) do
  local kind = call('TYPE', at).ok
  if kind ~= wanted and kind ~= 'none' then call('DEL', at) end
end

-- The place of an entry in the order: moment, id, line feed, who. No name has a line feed. nil for what another program wrote.
local function place_of(id, value)
  local line_feed = string.find(value, '\n', 19, true)
  return line_feed and string.sub(value, 1, 18) .. id .. '\n' .. string.sub(value, 19, line_feed - 1)
end

for first = 1, #entries, 2 do
  local id, value = entries[first], entries[first + 1]
  local known, place = call('HGET', values, id), place_of(id, value)
  local old = known and place_of(id, known)
  if old and old ~= place then call('ZREM', order, old) end
  call('HSET', values, id, value)
  call('ZADD', order, '0', place)
end

local old = most > 0 and call('ZRANGEBYLEX', order, '-', '(' .. before, 'LIMIT', 0, most) or {}
for _, place in ipairs(old) do
  local line_feed = string.find(place, '\n', 19, true)
  local id = line_feed and string.sub(place, 19, line_feed - 1)
  local value = id and call('HGET', values, id)
  if value and place_of(id, value) == place then call('HDEL', values, id) end
end
many('ZREM', order, old)
return #old
