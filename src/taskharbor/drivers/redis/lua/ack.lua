-- now, cluster, home, acks (queue, id, token, `a`, result or false) → how many of them, from the first on, were of plain jobs
-- and are applied. The rest is for settle.lua.
-- without: 30_record 50_lanes 60_flows 70_ends 80_store 90_take 95_fence 97_find 98_tend
local args = cmsgpack.unpack(ARGV[1])
th.begin(args[1], args[2], args[3])
local applied = 0
for _, ack in ipairs(args[4]) do
  if not th.plain_ack(ack[1], ack[2], ack[3], ack[5]) then break end
  applied = applied + 1
end
th.flush_plain()
th.finish()
return applied
