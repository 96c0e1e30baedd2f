-- The heads of queues: since when the oldest ready job waits, and the `wanted` jobs that a worker would get. Writes nothing, and reads no
-- payload. Looks at no more than `looks` entries of each queue.
-- Returns for each queue the time in ms as text, or false: none is ready; 1 if that is known; false or, if the jobs are known, whether the
-- groups are next (1 or 0), the ungrouped ids, and the ids of each group that has capacity, in the order of their turns.
-- without: 80_store 95_fence 98_housekeeping 99_sweep
local queues, wanted, looks = unpack(ARGS, 4)
local now, left = th.now, 0       -- how many entries may still be looked at; below 0: it would have been more

-- What a reserve needs to know of an entry in a list: since when it is ready, and when it came into the list; or nil, and whether it is
-- under a lease that a faster clock saw expire. A job that was last touched by a foreign client, or never waited before, is ready since
-- it was written.
local function ready_since(q, id)
  left = left - 1
  local v = try('HMGET', job_key(q, id), 'state', 'th_at', 'updated_ms', 'due_ms', 'th_xu', 'attempt', 'th_att')
  if not v or v[1] ~= 'wait' then return nil end
  local over, due = finite(v[5]), finite(v[4])
  if over and over > now then return nil, true end
  if due and due > now and not over then return nil end
  local came = finite(v[3]) or 0
  return whole(v[6]) == whole(v[7]) and finite(v[2]) or came, came
end

-- The first `count` ready entries of a list, and how many leases that hold stood before them.
local function first_of(q, list, count)
  local ids, held, from = {}, 0, 0
  while #ids < count and left >= 0 do
    local some = try('LRANGE', list, from, from + count - 1) or {}
    for _, id in ipairs(some) do
      local at, is_held = ready_since(q, id)
      if at then
        ids[#ids + 1] = id
      elseif is_held then
        held = held + 1
      end
      if left < 0 then break end
    end
    if #some < count then break end
    from = from + count
  end
  return ids, held
end

-- Since when the oldest entry of a list is ready. It is the first, unless that came when more was due than one call moves: then older
-- ones may stand behind it.
local function oldest_in(q, list, sliced)
  local oldest, from = nil, 0
  while left >= 0 do
    local id = try('LINDEX', list, from)
    if not id then break end
    local at, came = ready_since(q, id)
    if at and (not oldest or at < oldest) then oldest = at end
    if at and came > sliced then break end
    from = from + 1
  end
  return oldest
end

-- Entries of `delayed` or `active` up to now that are what they seem; `count`: how many. Each {id, at, gid, pri, seq, held, slice: how
-- many reserves come before the one that moves it}.
local function due_of(q, name, count)
  local state, found, from = name == 'active' and 'active' or 'delayed', {}, 0
  while #found < count and left >= 0 do
    local some = try('ZRANGEBYSCORE', key(q, name), '-inf', n(now), 'WITHSCORES', 'LIMIT', from, count) or {}
    for index = 1, #some, 2 do
      left = left - 1
      if left < 0 then break end
      local v = try('HMGET', job_key(q, some[index]), 'state', 'gid', 'th_pri', 'th_seq', 'th_sto')
      if v and v[1] == state then
        found[#found + 1] = {id = some[index], at = finite(some[index + 1]) or 0, gid = v[2] and v[2] ~= '' and v[2] or nil,
                             pri = finite(v[3]) or 0, seq = finite(v[4] or v[5]) or 0, held = state == 'active',
                             slice = floor((2 * from + index) / SLICE)}
      end
    end
    if #some < 2 * count then break end
    from = from + count
  end
  return found
end

-- The oldest of each priority: in `th:prio` those of one priority are in the order of their times.
local function oldest_by_priority(q, earliest)
  local at, after, from = key(q, 'th:prio'), '-inf', 0
  while left >= 0 do
    local head = try('ZRANGEBYSCORE', at, after, '+inf', 'WITHSCORES', 'LIMIT', from, 1)
    if not head or not head[1] then return end
    local since = ready_since(q, string.sub(head[1], 32))
    earliest(since)
    if since then after, from = '(' .. head[2], 0 else from = from + 1 end
  end
end

local function oldest_of(q)
  local found
  local function earliest(at)
    if at and (not found or at < found) then found = at end
  end
  local sliced = finite(try('GET', key(q, 'th:sliced'))) or -1
  earliest(oldest_in(q, key(q, 'wait'), sliced))
  oldest_by_priority(q, earliest)
  for _, name in ipairs({'delayed', 'active'}) do
    local first = due_of(q, name, 1)[1]
    earliest(first and first.at)
  end
  if call('EXISTS', key(q, 'has_groups')) == 1 then left = left - (try('ZCARD', key(q, 'active')) or 0) end
  if left < (try('ZCARD', key(q, 'groups:ready')) or 0) then return false, 0 end
  for _, gid in ipairs(th.groups(q)) do
    earliest(oldest_in(q, group_key(q, gid, 'wait'), sliced))
    if left < 0 then break end
  end
  if left < 0 then return false, 0 end
  return found and n(found), 1
end

local function by_priority(a, b)
  if a.pri ~= b.pri then return a.pri > b.pri end
  return earlier(a, b)
end

-- The ungrouped jobs in order: priorities above 0, the list, priorities below 0, each with what a reserve would move there first.
local function ungrouped_of(q, coming)
  local ids = {}
  local function from_prio(low, high, is_wanted)
    local found, from = {}, 0
    while #found < wanted and left >= 0 do
      local some = try('ZRANGEBYSCORE', key(q, 'th:prio'), low, high, 'WITHSCORES', 'LIMIT', from, wanted) or {}
      for index = 1, #some, 2 do
        local member = some[index]
        local id = string.sub(member, 32)
        if ready_since(q, id) then
          found[#found + 1] = {id = id, pri = -tonumber(some[index + 1]), at = tonumber(string.sub(member, 1, 15)) or 0,
                               seq = tonumber(string.sub(member, 16, 31)) or 0}
        end
      end
      if #some < 2 * wanted then break end
      from = from + wanted
    end
    for _, one in ipairs(coming) do
      if not one.gid and is_wanted(one.pri) then found[#found + 1] = one end
    end
    table.sort(found, by_priority)
    for _, one in ipairs(found) do ids[#ids + 1] = one.id end
  end
  from_prio('-inf', '(0', function(pri) return pri > 0 end)
  if #ids < wanted then
    for _, id in ipairs((first_of(q, key(q, 'wait'), wanted))) do ids[#ids + 1] = id end
    for _, one in ipairs(coming) do
      if not one.gid and one.pri == 0 then ids[#ids + 1] = one.id end
    end
  end
  if #ids < wanted then from_prio('(0', '+inf', function(pri) return pri < 0 end) end
  return {unpack(ids, 1, min(#ids, wanted))}
end

-- The groups that may run, in the order of their turns: those that are ready, then those that what is coming makes ready.
local function groups_of(q, coming)
  local turns, known, freed, joining, found = {}, {}, {}, {}, {}
  local function remember(gid)
    if not known[gid] then known[gid] = true; turns[#turns + 1] = gid end
  end
  for _, gid in ipairs(try('ZRANGE', key(q, 'groups:ready'), 0, looks) or {}) do remember(gid) end
  for _, one in ipairs(coming) do
    if one.gid then
      remember(one.gid)
      if one.held then freed[one.gid] = (freed[one.gid] or 0) + 1 end
      joining[one.gid] = joining[one.gid] or {}
      table.insert(joining[one.gid], one.id)
    end
  end
  for _, gid in ipairs(turns) do
    left = left - 1
    if #found >= wanted or left < 0 then break end
    local room = min(wanted, th.limit_of(q, gid) - th.inflight(q, gid) + (freed[gid] or 0))
    if room > 0 then
      local ids, held = first_of(q, group_key(q, gid, 'wait'), room)
      for _, id in ipairs(joining[gid] or {}) do ids[#ids + 1] = id end
      room = min(room - held, #ids)
      if room > 0 then found[#found + 1] = {unpack(ids, 1, room)} end
    end
  end
  return found
end

-- Whether jobs that a later reserve moves may overtake others: then no order of now is that of the reserves.
local function may_overtake(q, coming)
  local is_mixed, last = call('EXISTS', key(q, 'th:prio')) == 1, 0
  for _, one in ipairs(coming) do
    is_mixed, last = is_mixed or one.gid or one.pri ~= 0, max(last, one.slice)
  end
  return is_mixed and last > 0
end

local function next_of(q)
  local coming = due_of(q, 'delayed', looks)
  for _, one in ipairs(due_of(q, 'active', looks)) do coming[#coming + 1] = one end
  if may_overtake(q, coming) then return false end
  table.sort(coming, function(a, b)
    if a.slice ~= b.slice then return a.slice < b.slice end
    return earlier(a, b)
  end)
  local ungrouped = ungrouped_of(q, coming)
  local groups = groups_of(q, coming)
  if left < 0 then return false end
  return {try('GET', key(q, 'lane:rr')) ~= '1' and 1 or 0, ungrouped, groups}
end

local results = {}
for index, q in ipairs(queues) do
  left = looks
  local oldest, known = oldest_of(q)
  left = looks
  results[index] = {oldest or false, known, wanted > 0 and next_of(q)}
end
return results
