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
if is_fine and type(prepared) == 'table' and #prepared == 5 then      -- else another program wrote over it
  local at, name, source, value, jobs = unpack(prepared)
  th.begin(at, cluster, home)
  th.store_scheduled(jobs)
  local _, place = th.schedule(home, name)
  th.put_schedule(home, name, value, place)
  th.finish()
end
call('HDEL', coming, token)
return 1
