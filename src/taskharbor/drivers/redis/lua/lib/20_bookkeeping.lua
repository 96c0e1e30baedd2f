-- What is written once at the end of a script, however many jobs it moved: OmniQ 4.0's index and statistics, and the hint that work
-- may have arrived. An id is removed from every lane of the index and added to one, which repairs what others left.

local moved = {}      -- queue → id → lane of OmniQ's index, or false: none
local grouped = {}    -- queue → by how much the number of waiting grouped jobs changed
local steps = {}      -- queue → what happened there: enqueue, reserve, finish → true
local hinted = {}     -- queue → how many jobs more than before a reserve may find there

function th.index(q, id, lane)
  local ids = moved[q]
  if not ids then ids = {}; moved[q] = ids end
  ids[id] = lane
end

function th.note_step(q, what)
  local found = steps[q]
  if not found then found = {}; steps[q] = found end
  found[what] = true
end

function th.hint(q, count)
  hinted[q] = (hinted[q] or 0) + (count or 1)
end

local function write_index(q, ids)
  local all, to, now = {}, {}, n(th.now)
  for id, lane in pairs(ids) do
    all[#all + 1] = id
    if lane then
      local list = to[lane]
      if not list then list = {}; to[lane] = list end
      list[#list + 1] = now
      list[#list + 1] = id
    end
  end
  if #all == 0 then return end
  if not INDEXED then return unindex(q, all) end
  for _, lane in ipairs(LANES) do
    local at, list = key(q, 'idx:' .. lane), to[lane]
    if list and #list == 2 * #all then
      index_ids('ZADD', at, list)
    else
      index_ids('ZREM', at, all)
      if list then index_ids('ZADD', at, list) end
    end
  end
end

function th.finish()
  for q, ids in pairs(moved) do
    write_index(q, ids)
    write_stats(q, n(th.now), grouped[q] or 0, steps[q] or {})
  end
  for q, count in pairs(hinted) do
    call('PUBLISH', key(q, WAKE), n(finite(try('GET', key(q, 'th:seq'))) or 0) .. ' ' .. n(count))
  end
end
