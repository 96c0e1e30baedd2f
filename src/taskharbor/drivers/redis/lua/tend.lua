-- now, cluster, home, queues → nothing. On one server the queues with watched jobs come in by themselves.
-- without: 80_store 95_fence 97_find 99_sweep
local args = cmsgpack.unpack(ARGV[1])
even_if_full()
th.begin(args[1], args[2], args[3])
local seen = {}
for _, q in ipairs(args[4]) do
  seen[q] = true
  th.tend(q)
end
if not th.cluster then
  for _, q in ipairs(call('SMEMBERS', WATCHED)) do
    if not seen[q] then th.tend(q) end
  end
end
th.finish()
return 1
