-- OmniQ 4.0's bookkeeping of one queue. What can be counted is written as it is, so whatever others left out is mended by
-- the next who writes it. `whole_stats` and the general index (20_books) write all of it; `quick_stats` and `quick_index`
-- what a step of plain jobs can change, and all of it where that does not fit what they find.

local LANES = {'wait', 'active', 'delayed', 'failed', 'completed'}

-- `change`: by how much the number of waiting grouped jobs changed. `happened`: enqueue, reserve, finish → true.
local function whole_stats(q, now, change, happened)
  local at = key(q, 'stats')
  local waiting = call('LLEN', key(q, 'wait'))
  local in_groups = max(0, (tonumber(call('HGET', at, 'group_waiting') or 0) or 0) + change)
  local fields = {
    'waiting', waiting, 'group_waiting', n(in_groups), 'waiting_total', n(waiting + in_groups),
    'active', call('ZCARD', key(q, 'active')), 'delayed', call('ZCARD', key(q, 'delayed')),
    'failed', call('LLEN', key(q, 'failed')), 'completed_kept', call('LLEN', key(q, 'completed')),
    'groups_ready', call('ZCARD', key(q, 'groups:ready')), 'last_activity_ms', now,
  }
  for what in pairs(happened) do
    fields[#fields + 1] = 'last_' .. what .. '_ms'
    fields[#fields + 1] = now
  end
  call('HSET', at, unpack(fields))
end

-- After plain, ungrouped jobs came (enqueue), were taken (reserve) or were acked (finish).
local function quick_stats(q, now, what)
  local at = key(q, 'stats')
  local found = call('HMGET', at, 'group_waiting', 'delayed')
  if not found[2] then return whole_stats(q, now, 0, {[what] = true}) end
  if what == 'finish' then
    call('HSET', at, 'active', call('ZCARD', key(q, 'active')), 'last_activity_ms', now, 'last_finish_ms', now)
    return
  end
  local waiting = call('LLEN', key(q, 'wait'))
  local total = waiting + (tonumber(found[1] or 0) or 0)
  if what == 'enqueue' then
    call('HSET', at, 'waiting', waiting, 'waiting_total', total, 'last_activity_ms', now, 'last_enqueue_ms', now)
  else
    call('HSET', at, 'waiting', waiting, 'waiting_total', total, 'active', call('ZCARD', key(q, 'active')),
         'last_activity_ms', now, 'last_reserve_ms', now)
  end
end

-- Ids went from one lane of the index to another (`scored`: with their scores, for ZADD), or out of it.
local function quick_index(q, ids, from, to, scored)
  if (many('ZREM', key(q, 'idx:' .. from), ids) or 0) < #ids then
    for _, lane in ipairs(LANES) do
      if lane ~= from and lane ~= to then many('ZREM', key(q, 'idx:' .. lane), ids) end
    end
  end
  if to then many('ZADD', key(q, 'idx:' .. to), scored) end
end

-- Ids with the same score, as ZADD wants them; the last first: a small set is searched from its smallest member on.
local function with_score(score, ids)
  local list, size = {}, #ids
  for index = 1, size do
    list[2 * index - 1] = score
    list[2 * index] = ids[size + 1 - index]
  end
  return list
end
