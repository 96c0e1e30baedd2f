-- The leases that a worker holds, from a slice of the active jobs of these queues. keep: tokens to leave out.
-- Returns {queue, id, arrival} of each, and where to go on: the number of a queue (0: that was all) and a cursor.
-- without: 80_store 95_fence 97_read 98_housekeeping 99_sweep
local queues, worker, keep, queue_number, cursor = unpack(ARGS, 4)
even_if_full()      -- a replica must not answer: its leases may be old
local kept, found, looked = {}, {}, 0
for _, token in ipairs(keep) do kept[token] = true end
while queue_number <= #queues and looked < 500 do
  local q = queues[queue_number]
  local page = try('ZSCAN', key(q, 'active'), cursor, 'COUNT', 250) or {'0', {}}
  cursor = page[1]
  for index = 1, #page[2], 2 do
    looked = looked + 1
    local id = page[2][index]
    local seq = (finite(page[2][index + 1]) or 0) > th.now and th.lease_of(q, id, worker, kept)
    if seq then found[#found + 1] = {q, id, seq} end
  end
  if cursor == '0' then queue_number = queue_number + 1 end
end
return {found, queue_number <= #queues and queue_number or 0, cursor}
