-- What is written once at the end of a script, however many jobs it moved: OmniQ 4.0's index and statistics, and the
-- hint that work may have come. An id is taken out of every index and put into one, so what others left is mended.

local moved = {}      -- queue → id → lane, or false: in none
local grouped = {}    -- queue → by how much the number of waiting grouped jobs changed
local stamped = {}    -- queue → what happened: enqueue, reserve, finish
local hinted = {}     -- queue → true: a reserve may find more than before
local flushes = {}    -- what must be written before lists are read, see lanes
local drained = {}    -- the same as a list, in order

function th.begin(now, cluster, home)
  th.now, th.cluster, th.home = now, cluster and true or false, home or ''
end

function th.book(q, id, lane)
  local ids = moved[q]
  if not ids then ids = {}; moved[q] = ids end
  ids[id] = lane
end

function th.stamp(q, what)
  local found = stamped[q]
  if not found then found = {}; stamped[q] = found end
  found[what] = true
end

function th.hint(q)
  hinted[q] = true
end

-- The next number in the order of arrival of a queue; `count` numbers end with the one answered.
function th.next(q, count)
  return call('INCRBY', key(q, 'th:seq'), count or 1)
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
  for _, lane in ipairs(LANES) do
    local at, list = key(q, 'idx:' .. lane), to[lane]
    if list and #list == 2 * #all then
      many('ZADD', at, list)
    else
      many('ZREM', at, all)
      if list then many('ZADD', at, list) end
    end
  end
end

local buffered = {}      -- list → ids to be appended

function th.flush(list)
  local ids = buffered[list]
  if ids then
    buffered[list] = nil
    many('RPUSH', list, ids)
  end
end

function th.finish()
  for _, list in ipairs(drained) do th.flush(list) end
  for q, ids in pairs(moved) do
    write_index(q, ids)
    whole_stats(q, n(th.now), grouped[q] or 0, stamped[q] or {})
  end
  for q in pairs(hinted) do call('PUBLISH', key(q, 'th:wake'), q) end
end
