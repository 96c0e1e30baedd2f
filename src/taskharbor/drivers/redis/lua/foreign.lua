-- queue → the ids that stand in its lanes and are not in `th:ids`: a foreign client published them. Quick if there are none.
-- without: 99_sweep
local args = cmsgpack.unpack(ARGV[1])
local q = args[1]
local lanes = {call('LLEN', key(q, 'wait')), call('ZCARD', key(q, 'delayed')), call('ZCARD', key(q, 'active')),
               call('LLEN', key(q, 'failed')), call('ZCARD', key(q, 'th:prio')), call('SCARD', key(q, 'th:blocked')),
               call('ZCARD', key(q, 'th:done')), call('ZCARD', key(q, 'th:cancelled'))}
local total, groups = 0, th.groups(q)
for _, size in ipairs(lanes) do total = total + size end
for _, gid in ipairs(groups) do total = total + call('LLEN', group_key(q, gid, 'wait')) end
if total == call('ZCARD', key(q, 'th:ids')) and call('LLEN', key(q, 'completed')) == 0 then return {} end

local found, seen = {}, {}
local function walk(ids)
  for _, id in ipairs(ids) do
    if not seen[id] and not call('ZSCORE', key(q, 'th:ids'), id) then
      seen[id] = true
      found[#found + 1] = id
    end
  end
end
for _, name in ipairs({'wait', 'failed', 'completed'}) do walk(call('LRANGE', key(q, name), 0, -1)) end
for _, name in ipairs({'delayed', 'active'}) do walk(call('ZRANGE', key(q, name), 0, -1)) end
for _, gid in ipairs(groups) do walk(call('LRANGE', group_key(q, gid, 'wait'), 0, -1)) end
return found
