-- What is written once at the end of a script, however many jobs it moved: OmniQ 4.0's index and statistics, and the
-- hint that work may have come. An id is taken out of every index and put into one, so what others left is mended.

local LANES = {'wait', 'active', 'delayed', 'failed', 'completed'}
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
  local all, to = {}, {}
  for id, lane in pairs(ids) do
    all[#all + 1] = id
    if lane then
      local list = to[lane]
      if not list then list = {}; to[lane] = list end
      list[#list + 1] = n(th.now)
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

local function write_stats(q)
  local at, now = key(q, 'stats'), n(th.now)
  local waiting = call('LLEN', key(q, 'wait'))
  local in_groups = tonumber(call('HGET', at, 'group_waiting') or 0) or 0
  in_groups = max(0, in_groups + (grouped[q] or 0))
  local fields = {
    'waiting', waiting, 'group_waiting', n(in_groups), 'waiting_total', n(waiting + in_groups),
    'active', call('ZCARD', key(q, 'active')), 'delayed', call('ZCARD', key(q, 'delayed')),
    'failed', call('LLEN', key(q, 'failed')), 'completed_kept', call('LLEN', key(q, 'completed')),
    'groups_ready', call('ZCARD', key(q, 'groups:ready')), 'last_activity_ms', now,
  }
  for what in pairs(stamped[q] or {}) do
    fields[#fields + 1] = 'last_' .. what .. '_ms'
    fields[#fields + 1] = now
  end
  call('HSET', at, unpack(fields))
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
    write_stats(q)
  end
  for q in pairs(hinted) do call('PUBLISH', key(q, 'th:wake'), q) end
end
