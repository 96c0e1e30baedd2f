-- Read rows of schedules.
-- items: name, the sorted set in which it was found, or '', and its member there, of each, one after the other.
-- Returns the values (false: there is no row that belongs there), as many as fit into a megabyte, and the numbers of those to mend.
-- needs: 10_keys 28_utf8
-- with: schedules_read
local items = unpack(ARGS, 4)
local MAX_BYTES = 1000000      -- of values that are read before a script ends
local values, wrong, bytes = {}, {}, 0

local function is_in_order(row)
  for at, member in pairs(row.sets) do
    if not try('ZSCORE', key(HOME, at), member) then return false end
  end
  return true
end

for first = 1, #items, 3 do
  if bytes >= MAX_BYTES then break end
  local name, at, member = items[first], items[first + 1], items[first + 2]
  local value = try('HGET', key(HOME, 'rows'), name)
  local row = th.read_schedule(name, value)
  local belongs = at == '' or (row and row.sets[at] == member)
  values[#values + 1] = row and belongs and value or false
  bytes = bytes + (value and #value or 0)
  if not belongs or (row and not is_in_order(row)) then wrong[#wrong + 1] = #values end
end
return {values, wrong}
