-- queue → the ids that stand in its lanes and are not in `th:ids`: a foreign client published them. Quick if there are none.
-- without: 99_sweep
local args = cmsgpack.unpack(ARGV[1])
local q = args[1]
local lanes = {(try('LLEN', key(q, 'wait')) or 0), (try('ZCARD', key(q, 'delayed')) or 0), (try('ZCARD', key(q, 'active')) or 0),
               (try('LLEN', key(q, 'failed')) or 0), (try('ZCARD', key(q, 'th:prio')) or 0), (try('SCARD', key(q, 'th:blocked')) or 0),
               (try('ZCARD', key(q, 'th:done')) or 0), (try('ZCARD', key(q, 'th:cancelled')) or 0)}
local total, groups = 0, th.groups(q)
for _, size in ipairs(lanes) do total = total + size end
for _, gid in ipairs(groups) do total = total + (try('LLEN', group_key(q, gid, 'wait')) or 0) end
if total == (try('ZCARD', key(q, 'th:ids')) or 0) and (try('LLEN', key(q, 'completed')) or 0) == 0 then return {} end

local found, seen = {}, {}
local function walk(ids)
  for _, id in ipairs(ids) do
    if not seen[id] and not try('ZSCORE', key(q, 'th:ids'), id) then
      seen[id] = true
      found[#found + 1] = id
    end
  end
end
for _, name in ipairs({'wait', 'failed', 'completed'}) do walk(try('LRANGE', key(q, name), 0, -1) or {}) end
for _, name in ipairs({'delayed', 'active'}) do walk(try('ZRANGE', key(q, name), 0, -1) or {}) end
for _, gid in ipairs(groups) do walk(try('LRANGE', group_key(q, gid, 'wait'), 0, -1) or {}) end
return found
