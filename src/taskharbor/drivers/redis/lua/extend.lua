-- Extend leases. leases: {queue, id, token, and a note to store, if there is one}. Returns for each the end of the lease in ms, or minus the number of the refusal.
-- without: 80_store 97_read 98_housekeeping 99_sweep
local lease_ms, leases = unpack(ARGS, 4)
even_if_full()
local results, wanted = {}, th.now + lease_ms
for index, lease in ipairs(leases) do
  local q, id = lease[1], lease[2]
  local job = th.load(q, id)
  local refused = th.fence(job, lease[3])
  if refused > 0 then
    results[index] = -refused
  else
    th.reactivate(q, id, job)
    local over, fields = tonumber(job.lock_until_ms), {}
    if lease[4] then add(fields, 'th_note', lease[4]) end
    if wanted > over then
      over = wanted
      add(fields, 'lock_until_ms', n(over), 'updated_ms', n(th.now))
      call('ZADD', safe_key(q, 'active'), n(over), id)
    end
    write(q, id, fields)
    results[index] = over
  end
end
th.finish()
return results
