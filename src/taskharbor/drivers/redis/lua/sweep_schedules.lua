-- Put rows of schedules back that are missing in one of the sorted sets (lib/schedules_read.lua), some in each call.
-- cursor: where to go on; count: about how many rows. Returns the cursor to go on with; 0: that was all.
-- needs: 10_keys 25_key_repair 28_utf8
-- with: schedules_read schedules_write
local cursor, count = unpack(ARGS, 4)
even_if_full()
local page = call('HSCAN', safe_key(HOME, 'rows', 'hash'), cursor, 'COUNT', count)
for index = 1, #page[2], 2 do
  local row = th.read_schedule(page[2][index], page[2][index + 1])
  if row then th.list_schedule(row) end
end
return page[1]
