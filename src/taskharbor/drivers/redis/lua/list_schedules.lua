-- Where schedules are, in the order of their names.
-- names: returns for each its entry in the index (lib/schedules_read.lua), or false. names is false: a page of `count` from `start` on (a
-- bound as ZRANGEBYLEX takes it), of the names of one queue, or of the entries of all.
-- Returns also, for a queue on a Cluster, rows that may be stuck on their way there: see th.stuck_schedules.
-- needs: 10_keys 28_utf8
-- with: schedules_read
local now, cluster, home, names, q, start, count, slow_ms = unpack(cmsgpack.unpack(ARGV[1]))
if names then
  local found = {}
  for index, name in ipairs(names) do found[index] = th.schedule_entry(name) or false end
  return {found, {}}
end
local at = q and key(q, 'th:schedules:names') or INDEX
return {try('ZRANGEBYLEX', at, start, '+', 'LIMIT', '0', count) or {}, cluster and q and th.stuck_schedules(q, slow_ms) or {}}
