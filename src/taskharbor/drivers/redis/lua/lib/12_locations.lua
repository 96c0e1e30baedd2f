-- In which queue an id is. It is noted in one of many hashes, each so small that Redis keeps it as one block of bytes, half of
-- what an id costs in a large one. On a Cluster they are in sixteen slots of their own (`at`), and kept by cluster_registry.lua.

local NOTES = '{th:ids:0}:'
local HASHES = 16381  -- so many: fewer would be searched for longer in a large store, more cost more in a small one

-- Which hash: by what ULIDs have in common that were made one after the other, so that those of a call are noted together; by
-- the end of any other id.
local function note_number(id)
  local first = #id == 26 and 16 or -4
  local a, b, c, d = string.byte(id, first, first + 3)
  return (((a or 0) * 131 + (b or 0)) * 131 + (c or 0)) * 131 + (d or 0)
end

-- Ids by the hash that they are noted in.
local function by_notes(ids)
  local notes, lists = {}, {}
  for _, id in ipairs(ids) do
    local number = note_number(id) % HASHES
    local list = lists[number]
    if not list then
      list = {}
      lists[number], notes[NOTES .. number] = list, list
    end
    list[#list + 1] = id
  end
  return notes
end

-- Note the queue of ids of one hash; what somebody else wrote there instead is thrown away.
local function note_queue(at, ids, q)
  for first = 1, #ids, 2000 do
    local list = {}
    for index = first, min(first + 1999, #ids) do
      list[#list + 1] = ids[index]
      list[#list + 1] = q
    end
    if not try('HSET', at, unpack(list)) then
      call('DEL', at)
      call('HSET', at, unpack(list))
    end
  end
end

-- Note the queue of ids that are new. Answers them by hash; nil: one is noted already, and nothing has changed.
local function note_new(ids, q)
  if #ids == 1 then
    local at = NOTES .. note_number(ids[1]) % HASHES
    local is_new = try('HSETNX', at, ids[1], q)
    if not is_new then note_queue(at, ids, q) end
    return is_new ~= 0 and {[at] = ids} or nil
  end
  local notes, done = by_notes(ids), {}
  for at, some in pairs(notes) do
    local is_known = false
    if #some == 1 then
      local is_new = try('HSETNX', at, some[1], q)
      if not is_new then note_queue(at, some, q) end
      is_known = is_new == 0
    else
      for first = 1, #some, 4000 do
        for _, found in ipairs(try('HMGET', at, unpack(some, first, min(first + 3999, #some))) or {}) do
          is_known = is_known or found
        end
      end
      if not is_known then note_queue(at, some, q) end
    end
    if is_known then
      for where, ids_there in pairs(done) do many('HDEL', where, ids_there) end
      return nil
    end
    done[at] = some
  end
  return notes
end
