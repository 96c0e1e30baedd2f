-- Finding jobs by id alone, and reading them whole. Nothing here changes a job.

-- The queue of an id, on one server, by its stored location. Foreign clients store none: see find_in_queues.lua.
function th.locate(id)
  local noted = stored_queue(id)
  if noted and call('EXISTS', job_key(noted, id)) == 1 then return noted end
  return nil
end

-- A record as clients read it: id, queue, open dependencies while it is blocked, then its values.
function th.whole_record(q, id)
  local values = th.read(q, id)
  if not values then return false end
  local open = false
  if values[3] == 'blocked' then open = call('SMEMBERS', key(q, 'th:open:' .. id)) end
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
