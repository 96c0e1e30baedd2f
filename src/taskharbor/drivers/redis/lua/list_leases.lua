-- now, queues, worker, tokens to keep, the number of a queue and a cursor into its active jobs → the leases of the worker that
-- a slice of them holds (queue, id, arrival), and where to go on: the number of a queue (0: that was all), and a cursor.
-- without: 80_store 95_fence 97_read 98_housekeeping 99_sweep
local args = cmsgpack.unpack(ARGV[1])
even_if_full()      -- a replica must not answer: its leases may be old
local now, queues, worker, kept, found = args[1], args[2], args[3], {}, {}
for _, token in ipairs(args[4]) do kept[token] = true end
local number, cursor, looked = args[5], args[6], 0
while number <= #queues and looked < 500 do
  local q = queues[number]
  local page = try('ZSCAN', key(q, 'active'), cursor, 'COUNT', 250) or {'0', {}}
  cursor = page[1]
  for index = 1, #page[2], 2 do
    looked = looked + 1
    local id = page[2][index]
    local seq = (finite(page[2][index + 1]) or 0) > now and th.lease_of(q, id, worker, kept)
    if seq then found[#found + 1] = {q, id, seq} end
  end
  if cursor == '0' then number = number + 1 end
end
return {found, number <= #queues and number or 0, cursor}
