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

-- How much the keys of a queue hold that are there, by name; a key that holds something else counts as empty. Most queues of very many
-- have one or two of them: name those first, since it stops when it has met all that are there.
local SIZE = {wait = 'LLEN', failed = 'LLEN', completed = 'LLEN', paused = 'EXISTS', has_groups = 'EXISTS'}
function th.sizes(q, names)
  local keys, found = {}, {}
  for index, name in ipairs(names) do keys[index] = key(q, name) end
  local left = call('EXISTS', unpack(keys))
  for index, name in ipairs(names) do
    if left == 0 then break end
    local size = try(SIZE[name] or 'ZCARD', keys[index])
    if size ~= 0 then found[name], left = size or 0, left - 1 end
  end
  return found
end

-- Whether a queue may hold ids that are not in its index; false if the counts show that there are none. `most`: groups that are looked at.
local LISTED = {
  'th:ids', 'wait', 'th:done', 'failed', 'active', 'delayed', 'th:prio', 'th:blocked', 'th:cancelled', 'completed', 'has_groups',
  'groups:ready',
}
function th.has_others(q, most)
  local sizes, total = th.sizes(q, LISTED), 0
  if (sizes.completed or 0) > 0 then return true end
  for place = 2, 9 do total = total + (sizes[LISTED[place]] or 0) end
  if sizes.has_groups then
    if (sizes.active or 0) + (sizes['groups:ready'] or 0) > most then return true end
    for _, gid in ipairs(th.groups(q)) do total = total + (try('LLEN', key(q, 'g:' .. gid .. ':wait')) or 0) end
  end
  local own = (sizes['th:ids'] or 0) > 0 and (finite(try('GET', key(q, 'th:count')) or 0) or -1) or 0
  return total ~= own
end
