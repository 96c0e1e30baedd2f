-- Promote what is due. In: how many at most. Out: how many were. Each goes to the end of its own list, in the order of
-- (due, arrival). An id without a record, or whose record is in another state, is dropped.
even_if_full()
local at = safe_key(q, 'delayed')
local due = call('ZRANGEBYSCORE', at, '-inf', n(th.now), 'WITHSCORES', 'LIMIT', 0, ARGS[4])
local ready, ids, damaged = {}, {}, {}
for index = 1, #due, 2 do
  local id = due[index]
  local job, is_other = th.load(q, id)
  ids[#ids + 1] = id
  if is_other or (job and (call('HEXISTS', job_key(q, id), 'payload') == 0 or not KNOWN[job.state or ''])) then
    damaged[#damaged + 1] = {id, job, is_other and 'not a hash' or 'payload is missing'}
  elseif job and job.state == 'delayed' then
    ready[#ready + 1] = {id, finite(due[index + 1]) or 0, whole(job.th_seq), job}
  end
end
many('ZREM', at, ids)
for _, one in ipairs(damaged) do
  if one[2] and not one[2].th_sto then th.forget(q, one[1], one[2]) else th.set_aside(q, one[1], one[3]) end
end
table.sort(ready, function(a, b)
  if a[2] ~= b[2] then return a[2] < b[2] end
  if a[3] ~= b[3] then return a[3] < b[3] end
  return a[1] < b[1]
end)
for _, one in ipairs(ready) do append(one[1], one[4], {}) end
th.finish()
return #ready
