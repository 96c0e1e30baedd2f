-- Finding jobs by id alone, and reading them whole. Nothing here changes a job.

-- The queue of an id, on one server, by its stored location. Foreign clients store none: see find_in_queues.lua.
function th.locate(id)
  local noted = stored_queue(id)
  if noted and call('EXISTS', job_key(noted, id)) == 1 then return noted end
  return nil
end

-- The fields without the long ones.
local BRIEF = {}
for index, name in ipairs(READ) do
  BRIEF[index] = name ~= 'payload' and name ~= 'th_res' and name ~= 'th_trail' and name or ''
end

-- A record as clients read it: id, queue, open dependencies while it is blocked, then its values. `brief`: without payload, result and
-- trail. `skipped`: false for a record in one of these states.
function th.whole_record(q, id, brief, skipped)
  local values = th.read(q, id, nil, brief and BRIEF)
  if not values or (skipped and skipped[values[3]]) then return false end
  local open = false
  if values[3] == 'blocked' then open = try('SMEMBERS', key(q, 'th:open:' .. id)) or {} end
  return {id, q, open, values}
end

-- Groups that may have waiting jobs: those that are ready, and those that are full, which have active ones.
function th.groups(q)
  local found, seen = {}, {}
  local function remember(gid)
    if gid and gid ~= '' and not seen[gid] then seen[gid] = true; found[#found + 1] = gid end
  end
  for _, gid in ipairs(try('ZRANGE', key(q, 'groups:ready'), 0, -1) or {}) do remember(gid) end
  if call('EXISTS', key(q, 'has_groups')) == 1 then
    for _, id in ipairs(try('ZRANGE', key(q, 'active'), 0, -1) or {}) do remember(try('HGET', job_key(q, id), 'gid')) end
  end
  return found
end

-- Whether a queue may hold ids that are not in its index; false if the counts show that there are none. `most`: groups that are looked at.
function th.has_others(q, most)
  local function size(command, name)
    return try(command, key(q, name)) or 0
  end
  if size('LLEN', 'completed') > 0 then return true end
  local total = size('LLEN', 'wait') + size('ZCARD', 'delayed') + size('ZCARD', 'active') + size('LLEN', 'failed')
                + size('ZCARD', 'th:prio') + size('ZCARD', 'th:blocked') + size('ZCARD', 'th:done') + size('ZCARD', 'th:cancelled')
  if call('EXISTS', key(q, 'has_groups')) == 1 then
    if size('ZCARD', 'active') + size('ZCARD', 'groups:ready') > most then return true end
    for _, gid in ipairs(th.groups(q)) do total = total + size('LLEN', 'g:' .. gid .. ':wait') end
  end
  local own = size('ZCARD', 'th:ids') > 0 and (finite(size('GET', 'th:count')) or -1) or 0
  return total ~= own
end
