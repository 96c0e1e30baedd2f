-- Waiting jobs of groups, where counts.lua leaves them out because there are many groups. queue, then
--   named, lane, cursor → the groups that a slice of `groups:ready` or `active` names, and the next cursor
--   waiting, groups     → how many jobs wait in their lines
-- without: 80_store 95_fence 97_read 98_housekeeping 99_sweep
local args = cmsgpack.unpack(ARGV[1])
local q = args[1]
if args[2] == 'waiting' then
  local number = 0
  for _, gid in ipairs(args[3]) do number = number + (try('LLEN', group_key(q, gid, 'wait')) or 0) end
  return number
end
local page, found = try('ZSCAN', key(q, args[3]), args[4], 'COUNT', 1000) or {'0', {}}, {}
for index = 1, #page[2], 2 do
  local member = page[2][index]
  local gid = args[3] == 'active' and try('HGET', job_key(q, member), 'gid') or args[3] ~= 'active' and member
  if gid and gid ~= '' then found[#found + 1] = gid end
end
return {found, page[1]}
