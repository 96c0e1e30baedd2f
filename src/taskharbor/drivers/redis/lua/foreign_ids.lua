-- Ids that are in the lists and sets of a queue, but not in its index: a foreign client published them, or the index lost them.
--   step sorted: source, cursor → the ids in a slice of a sorted set, the groups met there, and the next cursor
--   step lists: lists, list_number, skip → the ids in a slice of these lists, each from its end to its head, and where to go on: the
--     number of a list (0: that was all), and how many entries to skip
-- without: 80_store 95_fence 98_housekeeping 99_sweep
local q, step, source, cursor, lists, list_number, skip = unpack(ARGS, 4)
local SLICE = 2000
local found = {}

local function note(id)
  if not has_id(q, id) then found[#found + 1] = id end
end

if step == 'sorted' then
  local groups = {}
  local page = try('ZSCAN', key(q, source), cursor, 'COUNT', SLICE / 2) or {'0', {}}
  for index = 1, #page[2], 2 do
    local member = page[2][index]
    if source == 'groups:ready' then
      groups[#groups + 1] = member
    else
      note(member)
      local gid = source == 'active' and try('HGET', job_key(q, member), 'gid')
      if gid and gid ~= '' then groups[#groups + 1] = gid end
    end
  end
  return {found, groups, page[1]}
end
local looked = 0
while list_number <= #lists and looked < SLICE do
  local count = SLICE - looked
  local ids = try('LRANGE', key(q, lists[list_number]), n(-skip - count), n(-skip - 1)) or {}
  for _, id in ipairs(ids) do note(id) end
  looked, skip = looked + #ids + 1, skip + #ids
  if #ids < count then list_number, skip = list_number + 1, 0 end
end
return {found, list_number <= #lists and list_number or 0, skip}
