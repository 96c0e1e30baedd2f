-- Change schedules, each together with the jobs that it stores. Each name comes once.
-- changes: {name, the revision that is expected or false: none, {queue, revision, value} or false: delete it, jobs (see 80_store)}.
-- Returns for each 1: it is as wanted, 0: it has another revision, 2: on a Cluster, the queue `home` has no such row. Behind such a change
-- with jobs it ends: the jobs of those that follow come later.
-- A full server refuses what brings jobs or a new row.
-- without: 90_reserve 95_fence 97_read 98_housekeeping 99_sweep
-- with: schedules_read schedules_store schedules_write
local now, cluster, home, changes = unpack(cmsgpack.unpack(ARGV[1]))
local brings = false
for _, change in ipairs(changes) do brings = brings or #change[4] > 0 or (change[3] and not change[2]) end
if brings then unless_full() else even_if_full() end
th.begin(now, cluster, home)

-- The queue that has a row, its revision and its place. The index may have lost it: then it is where the change wants it.
local function find(name, wanted)
  local noted = not th.cluster and select(2, th.schedule_entry(name)) or wanted
  for _, q in ipairs({noted, wanted}) do
    local revision, place = th.schedule(q, name)
    if revision then return q, revision, place end
  end
  return nil, false, false
end

local function apply(name, expect, to, jobs)
  local wanted = to and to[1] or nil
  local held, revision, place = find(name, wanted)
  if th.cluster and not held then return 2 end
  local is_done = not held and not to or revision and to and revision == to[2]
  if not is_done and revision ~= expect then return 0 end
  if not is_done then
    th.store_scheduled(jobs)
    if held and held ~= wanted then
      th.remove_schedule(held, name, place)
      place = false
    end
    if to then th.put_schedule(wanted, name, to[3], place) end
    held = wanted
  end
  if not th.cluster then th.set_schedule_entry(name, held and name .. '\n' .. held .. '\n') end
  return 1
end

local results = {}
for index, change in ipairs(changes) do
  results[index] = apply(unpack(change))
  if results[index] == 2 and #change[4] > 0 then break end
end
th.finish()
return results
