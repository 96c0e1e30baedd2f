-- Count the waiting jobs of groups, where counts.lua leaves them out because there are many groups.
--   step named: source `groups:ready` or `active`, cursor → the groups that a slice of it names, and the next cursor
--   step waiting: groups → how many jobs wait in them
-- without: 80_store 95_fence 97_read 98_housekeeping 99_sweep
local q, step, source, cursor, groups = unpack(ARGS, 4)
if step == 'waiting' then
  local number = 0
  for _, gid in ipairs(groups) do number = number + (try('LLEN', group_key(q, gid, 'wait')) or 0) end
  return number
end
local page, found = try('ZSCAN', key(q, source), cursor, 'COUNT', 1000) or {'0', {}}, {}
for index = 1, #page[2], 2 do
  local member = page[2][index]
  local gid = source == 'active' and try('HGET', job_key(q, member), 'gid') or source ~= 'active' and member
  if gid and gid ~= '' then found[#found + 1] = gid end
end
return {found, page[1]}
