-- Locations: in which queue an id is. They are in many small hashes, which Redis keeps as one block of bytes each: half of what an
-- id costs in a large hash. On a Cluster they are in sixteen hash slots of their own (`at`), and cluster_registry.lua writes them.

local LOCATIONS = '{th:ids:0}:'
local HASHES = 16381  -- fewer would take longer to search in a large store, more cost more in a small one

-- The number of the hash of an id. ULIDs made one after the other share it, so that the ids of a call are stored together; of any
-- other id the end decides.
local function location_hash(id)
  local first = #id == 26 and 16 or -4
  local a, b, c, d = string.byte(id, first, first + 3)
  return (((a or 0) * 131 + (b or 0)) * 131 + (c or 0)) * 131 + (d or 0)
end

-- Ids by the hash that has their location.
local function by_location_hash(ids)
  local notes, lists = {}, {}
  for _, id in ipairs(ids) do
    local number = location_hash(id) % HASHES
    local list = lists[number]
    if not list then
      list = {}
      lists[number], notes[LOCATIONS .. number] = list, list
    end
    list[#list + 1] = id
  end
  return notes
end

-- Store the queue of ids of one hash; anything else that another program wrote there is thrown away.
local function store_location(at, ids, q)
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

-- Store the queue of new ids. Returns them by hash; nil if one is stored already, and then nothing has changed.
local function store_new_locations(ids, q)
  if #ids == 1 then
    local at = LOCATIONS .. location_hash(ids[1]) % HASHES
    local is_new = try('HSETNX', at, ids[1], q)
    if not is_new then store_location(at, ids, q) end
    return is_new ~= 0 and {[at] = ids} or nil
  end
  local notes, done = by_location_hash(ids), {}
  for at, some in pairs(notes) do
    local is_known = false
    if #some == 1 then
      local is_new = try('HSETNX', at, some[1], q)
      if not is_new then store_location(at, some, q) end
      is_known = is_new == 0
    else
      for first = 1, #some, 4000 do
        for _, found in ipairs(try('HMGET', at, unpack(some, first, min(first + 3999, #some))) or {}) do
          is_known = is_known or found
        end
      end
      if not is_known then store_location(at, some, q) end
    end
    if is_known then
      for where, ids_there in pairs(done) do many('HDEL', where, ids_there) end
      return nil
    end
    done[at] = some
  end
  return notes
end
