-- Lease jobs from one queue that has only plain jobs, and where no scheduled job is due and no lease has ended. Nearly every
-- reserve.
-- Returns the number of the last arrival if nothing is left, or false; and for each job its values (see 45_plain_jobs) and its id, in
-- the order of the tokens. SLOW: nothing has changed, reserve.lua has to do it.
-- needs: 10_keys 15_omniq_stats 18_omniq_index 28_utf8 45_plain_jobs 47_plain_leases
local q, lease_ms, limit, worker, tokens = unpack(ARGS, 4)
even_if_full()
local wait, active = key(q, 'wait'), key(q, 'active')
local now = n(th.now)
if call('EXISTS', key(q, 'paused'), key(q, 'th:prio'), key(q, 'groups:ready')) > 0 or has_due(q, now) then return 'SLOW' end
local ids = try('LRANGE', wait, 0, n(limit - 1))
if not ids then return 'SLOW' end
local turn, last_arrival = unpack(call('MGET', key(q, 'lane:rr'), key(q, 'th:seq')))
local granted, at, seen, prefix = {}, {}, {}, job_key(q, '')
for index, id in ipairs(ids) do
  at[index] = prefix .. id
  local values = not seen[id] and th.plain_values(at[index])
  if not values or (values[6] or '') ~= '' then return 'SLOW' end      -- a job of a group, put here by others, takes a group place
  granted[index], seen[id] = values, true
end

if #ids > 0 then
  local until_ms, lease = n(th.now + lease_ms), n(lease_ms)
  call('LTRIM', wait, #ids, -1)
  many('ZADD', active, with_score(until_ms, ids))
  for index, values in ipairs(granted) do
    th.lease_plain(at[index], tokens[index], until_ms, lease, worker, now)
    values[#values + 1] = ids[index]
  end
  if turn ~= '0' then call('SET', key(q, 'lane:rr'), '0') end
  index_plain(q, ids, 'wait', 'active', with_score(now, ids))
  stats_plain(q, now, 'reserve')
end
return {#ids < limit and n(finite(last_arrival) or 0), granted}
