-- Change schedules (lib/schedules_read.lua), one after the other; their jobs are stored in the same transaction, on a Cluster by message.
-- changes: {name, revision that the row must have, or false: there must be none; the row as {queue, revision, value}, or false: it is
-- deleted; jobs as 80_store takes them} of each. A full server refuses new rows and new jobs.
-- Returns for each 1: the row is as wanted now, 0: it has another revision.
-- without: 90_reserve 95_fence 97_read 98_housekeeping 99_sweep
-- with: schedules_read schedules_store schedules_write
local changes = unpack(ARGS, 4)
local brings = false
for _, change in ipairs(changes) do brings = brings or #change[4] > 0 or (change[3] and not change[2]) end
if brings then unless_full() else even_if_full() end

local function apply(name, expect, to, jobs)
  local row = th.schedule(name)
  local revision = row and row.revision or false
  if revision == (to and to[2]) then return 1 end      -- it was sent again, or there is nothing to delete
  if revision ~= expect then return 0 end
  if #jobs > 0 then th.send(to[1], 'fire', jobs, to[2]) end
  if row then th.remove_schedule(name, row) end
  if to then th.put_schedule(name, to[3]) end
  return 1
end

local results = {}
for index, change in ipairs(changes) do results[index] = apply(unpack(change)) end
th.finish()
return results
