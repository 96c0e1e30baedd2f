-- Change the index of schedules on a Cluster (see cluster_schedules.py). entry, instead: as lib/schedules_read.lua describes them.
--   add      entry takes the place of `instead` (false: of none), unless its row was prepared longer than `patience_ms` ago. A full server
--            refuses it
--   replace  the same for a row that is already on its way, whenever it was prepared; entry is false: the name has none any more
--   confirm  each of `entries`, if its name has none
-- Returns 1 if the index is as wanted now, else 0.
-- needs: 10_keys 25_key_repair 28_utf8
-- with: schedules_read schedules_write
local now, cluster, home, operation, names, entries, instead, patience_ms = unpack(cmsgpack.unpack(ARGV[1]))
if operation == 'add' then unless_full() else even_if_full() end
if operation == 'confirm' then
  for index, name in ipairs(names) do
    if not th.schedule_entry(name) then th.set_schedule_entry(name, entries[index]) end
  end
  return 1
end
local name, entry = names[1], entries[1] or nil
local found = th.schedule_entry(name)
if found ~= entry and found ~= (instead or nil) then return 0 end
if operation == 'add' and found ~= entry and th.is_old(string.match(entry, '[^\n]*$'), patience_ms) then return 0 end
th.set_schedule_entry(name, entry)
return 1
