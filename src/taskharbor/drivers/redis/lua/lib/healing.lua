-- Comparing again what jobs wait for. A failover may lose any message between two hash slots, and another program may delete a key: then
-- a blocked job waits for one that is done, or gone, or does not know of it. So housekeeping asks for all blocked jobs in turn.

local COMPARED = 100      -- blocked jobs that one script reads
local EDGES = 500         -- and their edges, about

-- Edges of the blocked jobs that were compared longest ago, if that was more than `every` seconds ago: {queue of the dependency, dependency,
-- dependent, its order of storing, what is known: see receive.link}. Also returns whether there may be more.
function th.edges_to_compare(q, every)
  local at, clock, edges = safe_key(q, 'th:blocked'), tonumber(call('TIME')[1]), {}
  local ids = call('ZRANGEBYSCORE', at, '-inf', n(clock - every), 'LIMIT', 0, COMPARED)
  for index, id in ipairs(ids) do
    local job = th.load(q, id)
    if job and job.state == 'blocked' then
      local open = safe_key(q, 'th:open:' .. id, 'set')
      local is_lost = call('EXISTS', open) == 0
      if is_lost then wait_for_all(q, id, job) end
      for _, found in ipairs(dependencies(job)) do
        if call('SISMEMBER', open, found[1]) == 1 then
          edges[#edges + 1] = {found[2], found[1], id, job.th_sto or '0', is_lost and 'done' or false}
        end
      end
      call('ZADD', at, clock, id)
    else
      call('ZREM', at, id)
    end
    if #edges >= EDGES then return edges, true end
  end
  return edges, #ids == COMPARED
end

-- Compare an edge with the record of the dependency. Returns whether that is missing: unless `is_gone`, it may be under way.
function th.compare(q, id, dependent, sto, dq, mode, is_gone)
  local found = fields_of(q, id, 'state', 'payload', 'th_heir', 'th_heirq', 'th_flow')
  if found[1] or found[2] then
    if found[1] == 'cancelled' and found[5] then send(dq, 'stopped', dependent, id, found[5], 'heal') end
    local heir = found[1] == 'completed' and not th.cluster and mode ~= 'done' and found[3]
    if heir and heir ~= '' and call('EXISTS', job_key(found[4] or q, heir)) == 1 then
      receive.repoint(dq, dependent, id, heir, found[4] or q, 'free')
    elseif found[1] == 'completed' or string.sub(call('HGET', after_key(q, id), dependent) or '', 1, 1) ~= '1' then
      if receive.link(q, id, dependent, sto, dq, '1', mode) == false and not (th.cluster and dq ~= q) then
        receive.done(dq, dependent, id)
      end
    end
  elseif call('HEXISTS', safe_key(q, 'th:watched'), id) == 0 then      -- else a visit to its queue lets the dependent go
    local is_known = th.cluster and (mode == 'done' or call('HEXISTS', key(q, 'th:alias'), id) == 1)
    if not is_known and not is_gone then return true end
    if is_known then
      receive.link(q, id, dependent, sto, dq, '1', mode)
    else
      send(dq, mode == 'done' and 'done' or 'lost', dependent, id)
    end
  end
  return false
end
