-- OmniQ 4.0's statistics of one queue. Counts are read and written, not counted up, so that the next writer repairs what others left
-- out. `write_stats` and the general index (20_bookkeeping) write all of it; `stats_plain` and `index_plain` write what a step of
-- plain jobs can change, and all of it where they find something else. "Lane" is OmniQ's word for a list or set of jobs.

local LANES = {'wait', 'active', 'delayed', 'failed', 'completed'}
local INDEXED = true    -- false in the scripts of a driver that keeps no index (scripts.tuned)

-- Run a command for a list of ids. Bookkeeping never stops a job: anything else that another program wrote there is thrown away.
local function index_ids(command, at, list)
  local size, done = #list, 0
  for first = 1, size, 4000 do
    local last = min(first + 3999, size)
    local reply = try(command, at, unpack(list, first, last))
    if not reply then
      call('DEL', at)
      reply = call(command, at, unpack(list, first, last))
    end
    done = done + reply
  end
  return done
end

-- `change`: by how much the number of waiting grouped jobs changed. `happened`: enqueue, reserve, finish → true.
local function write_stats(q, now, change, happened)
  local at = key(q, 'stats')
  local waiting = try('LLEN', key(q, 'wait')) or 0
  local found = try('HGET', at, 'group_waiting')
  if found == nil then call('DEL', at) end
  local in_groups = max(0, (finite(found) or 0) + change)
  local fields = {
    'waiting', waiting, 'group_waiting', n(in_groups), 'waiting_total', n(waiting + in_groups),
    'active', try('ZCARD', key(q, 'active')) or 0, 'delayed', (try('ZCARD', key(q, 'delayed')) or 0),
    'failed', try('LLEN', key(q, 'failed')) or 0, 'completed_kept', (try('LLEN', key(q, 'completed')) or 0),
    'groups_ready', try('ZCARD', key(q, 'groups:ready')) or 0, 'last_activity_ms', now,
  }
  for what in pairs(happened) do
    fields[#fields + 1] = 'last_' .. what .. '_ms'
    fields[#fields + 1] = now
  end
  call('HSET', at, unpack(fields))
end

-- After plain, ungrouped jobs were stored (enqueue), taken (reserve) or acked (finish). `number`: how many wait now, or after a
-- finish are active, if the caller knows it.
local function stats_plain(q, now, what, number)
  local at = key(q, 'stats')
  local found = try('HMGET', at, 'group_waiting', 'delayed')
  if not found or not found[2] then return write_stats(q, now, 0, {[what] = true}) end
  if what == 'finish' then
    call('HSET', at, 'active', number or try('ZCARD', key(q, 'active')) or 0, 'last_activity_ms', now, 'last_finish_ms', now)
    return
  end
  local waiting = number or try('LLEN', key(q, 'wait')) or 0
  local total = waiting + (finite(found[1]) or 0)
  if what == 'enqueue' then
    call('HSET', at, 'waiting', waiting, 'waiting_total', total, 'last_activity_ms', now, 'last_enqueue_ms', now)
  else
    call('HSET', at, 'waiting', waiting, 'waiting_total', total, 'active', try('ZCARD', key(q, 'active')) or 0,
         'last_activity_ms', now, 'last_reserve_ms', now)
  end
end

-- Ids with the same score, as ZADD takes them. The last comes first: Redis searches a small set from its smallest member.
local function with_score(score, ids)
  local list, size = {}, #ids
  for index = 1, size do
    list[2 * index - 1] = score
    list[2 * index] = ids[size + 1 - index]
  end
  return list
end
