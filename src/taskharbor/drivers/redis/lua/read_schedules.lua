-- Read rows of schedules.
-- items: queue, name, and the place under which it was found among those that are due, or '', of each, one after the other.
-- Returns the values (false: there is no row), as many as fit into a megabyte, and the numbers of those whose order has to be mended.
-- needs: 10_keys 28_utf8
-- with: schedules_read
local now, cluster, home, items = unpack(cmsgpack.unpack(ARGV[1]))
local MAX_BYTES = 1000000      -- of values that are read before a script ends
local values, wrong, bytes = {}, {}, 0

-- Whether the sorted sets and the index have what they should have of a row.
local function is_in_order(q, name, place)
  return try('ZSCORE', key(q, 'th:schedules:names'), name)
         and (not place or try('ZSCORE', key(q, 'th:schedules:due'), place))
         and (cluster or try('ZSCORE', INDEX, name .. '\n' .. q .. '\n'))
end

for first = 1, #items, 3 do
  if bytes >= MAX_BYTES then break end
  local q, name, found_at = items[first], items[first + 1], items[first + 2]
  local value = try('HGET', key(q, 'th:schedules'), name)
  local revision, place = th.read_schedule(name, value)
  values[#values + 1] = revision and value or false
  bytes = bytes + (value and #value or 0)
  local is_stale = found_at ~= '' and found_at ~= place and try('ZSCORE', key(q, 'th:schedules:due'), found_at)
  if is_stale or (revision and not is_in_order(q, name, place)) then wrong[#wrong + 1] = #values end
end
return {values, wrong}
