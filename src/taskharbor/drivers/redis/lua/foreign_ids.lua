-- Ids that stand in the lanes of a queue and are not among those that this driver stored: a foreign client published
-- them, or the index has lost them. queue, then
--   any                               → whether there may be any: 0 if the numbers say that there are none
--   sorted, lane, cursor              → those in a slice of a sorted lane, the groups met there, and the next cursor
--   lists, names, number, passed over → those in a slice of these lists, each from its end to its head, and where to go on: the
--                                       number of a list (0: that was all), and how many of its entries to pass over
-- without: 80_store 95_fence 98_housekeeping 99_sweep
local args = cmsgpack.unpack(ARGV[1])
local SLICE = 2000
local q, found = args[1], {}

local function size(command, name)
  return try(command, key(q, name)) or 0
end

local function note(id)
  if not has_id(q, id) then found[#found + 1] = id end
end

if args[2] == 'any' then
  if size('LLEN', 'completed') > 0 then return 1 end
  local total = size('LLEN', 'wait') + size('ZCARD', 'delayed') + size('ZCARD', 'active') + size('LLEN', 'failed')
                + size('ZCARD', 'th:prio') + size('SCARD', 'th:blocked') + size('ZCARD', 'th:done') + size('ZCARD', 'th:cancelled')
  if call('EXISTS', key(q, 'has_groups')) == 1 then
    if size('ZCARD', 'active') + size('ZCARD', 'groups:ready') > SLICE then return 1 end
    for _, gid in ipairs(th.groups(q)) do total = total + size('LLEN', 'g:' .. gid .. ':wait') end
  end
  local own = size('ZCARD', 'th:ids') > 0 and (finite(size('GET', 'th:count')) or -1) or 0
  return total == own and 0 or 1
elseif args[2] == 'sorted' then
  local lane, groups = args[3], {}
  local page = try('ZSCAN', key(q, lane), args[4], 'COUNT', SLICE / 2) or {'0', {}}
  for index = 1, #page[2], 2 do
    local member = page[2][index]
    if lane == 'groups:ready' then
      groups[#groups + 1] = member
    else
      note(member)
      local gid = lane == 'active' and try('HGET', job_key(q, member), 'gid')
      if gid and gid ~= '' then groups[#groups + 1] = gid end
    end
  end
  return {found, groups, page[1]}
end
local names, number, passed, looked = args[3], args[4], args[5], 0
while number <= #names and looked < SLICE do
  local count = SLICE - looked
  local ids = try('LRANGE', key(q, names[number]), n(-passed - count), n(-passed - 1)) or {}
  for _, id in ipairs(ids) do note(id) end
  looked, passed = looked + #ids + 1, passed + #ids
  if #ids < count then number, passed = number + 1, 0 end
end
return {found, number <= #names and number or 0, passed}
