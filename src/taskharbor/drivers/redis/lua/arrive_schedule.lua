-- A schedule that was prepared in the queue `home` of a Cluster takes its place there, and its jobs are stored (see
-- cluster_schedules.py). Returns 1; 0 if another client did it.
-- without: 90_reserve 95_fence 97_read 98_housekeeping 99_sweep
-- with: schedules_read schedules_store schedules_write
local now, cluster, home, token = unpack(cmsgpack.unpack(ARGV[1]))
even_if_full()
local coming = safe_key(home, 'th:schedules:coming', 'hash')
local data = call('HGET', coming, token)
if not data then return 0 end
local is_fine, prepared = pcall(cmsgpack.unpack, data)
local at, name, source, value, jobs = unpack(is_fine and type(prepared) == 'table' and prepared or {})
if tonumber(at) and type(name) == 'string' and type(value) == 'string' and type(jobs) == 'table' then
  th.begin(at, cluster, home)
  th.store_scheduled(jobs)
  local _, place = th.schedule(home, name)
  th.put_schedule(home, name, value, place)
end      -- else another program wrote over it
call('HDEL', coming, token)
th.finish()
return 1
