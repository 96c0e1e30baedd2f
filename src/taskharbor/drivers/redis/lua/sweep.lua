-- Check the next records of a queue, where the last sweep by any client ended.
-- id_count, key_count: how many ids and idempotency keys to check.
-- Returns how many ids were checked, how many records were in no list or set and are put back, some of their ids, and those in doubt:
-- {list, id, state, since when} of records that are not near their place in a long list. On a Cluster also the ids whose locations another
-- script has to check; on one server a location that was lost is stored again here. Last, whether these were the last ids,
-- and the flows that have some of them.
-- Also forgets ids and keys without a record, and recounts groups that look full or do not add up.
-- without: 80_store 90_reserve 95_fence 97_read
local q, id_count, key_count = unpack(ARGS, 4)
even_if_full()
local at = safe_key(q, 'th:sweep', 'hash')
safe_key(q, 'th:ids')
local ids, last, lost = ids_after(q, call('HGET', at, 'id') or '', id_count)
drop_lost(q, lost)
local looked, restored, shown, doubtful, groups, located, flows, names = 0, 0, {}, {}, {}, {}, {}, {}
for _, id in ipairs(ids) do
  if th.searches >= 10 then break end
  looked = looked + 1
  local job, is_other = th.load(q, id)
  if is_other then
    th.set_aside(q, id, 'not a hash')
  elseif not job then
    th.forget(q, id, {state = 'gone', pri = 0, th_sto = '0'})
  else
    local list = th.absent(q, id, job)
    if list == true then
      th.restore(q, id, job)
      restored = restored + 1
      if #shown < 5 then shown[#shown + 1] = id end
    elseif list then
      doubtful[#doubtful + 1] = {list, id, job.state or '', n(th.since(q, id))}
    end
    if job.gid and job.state == 'wait' then groups[job.gid] = true end
    if job.th_key then call('HSETNX', safe_key(q, 'th:keys'), job.th_key, id) end
    if job.th_flow then
      th.restore_in_flow(q, id, job)
      flows[job.th_flow] = true
    end
    if job.state == 'completed' or job.state == 'cancelled' then th.check_need(q, id, job) end
    if job.th_sto and th.cluster then      -- a foreign client's job has no location
      located[#located + 1] = id
    elseif job.th_sto and not stored_queue(id) then
      store_location(location_key(id), {id}, q)
    end
  end
end

local keys = call('HSCAN', safe_key(q, 'th:keys'), call('HGET', at, 'key') or '0', 'COUNT', key_count)
for index = 1, #keys[2], 2 do
  if call('EXISTS', job_key(q, keys[2][index + 1])) == 0 then call('HDEL', key(q, 'th:keys'), keys[2][index]) end
end
local held = call('HSCAN', safe_key(q, 'th:held'), call('HGET', at, 'held') or '0', 'COUNT', key_count)
for index = 1, #held[2], 2 do
  if not th.is_active(q, held[2][index]) then      -- a foreign client ended the lease
    call('HDEL', key(q, 'th:held'), held[2][index])
    groups[held[2][index + 1]] = true
  end
end
for gid in pairs(groups) do
  if call('ZSCORE', safe_key(q, 'groups:ready'), gid) then groups[gid] = nil end
end
if next(groups) then th.recount_groups(q, groups) end
local damaged = safe_key(q, 'th:damaged', 'hash')
for index, name in ipairs(call('HSCAN', damaged, '0', 'COUNT', 100)[2]) do
  if index % 2 == 1 and call('EXISTS', key(q, 'th:damaged:' .. name)) == 0 then call('HDEL', damaged, name) end
end
if restored > 0 then th.count_repairs(q, restored, 0) end
local next_id = looked < #ids and ids[looked] or last or ''
if next_id == '' or not finite(try('GET', key(q, 'th:count'))) then recount_ids(q) end
if next_id == '' and keys[1] == '0' and held[1] == '0' then
  call('DEL', at)
elseif call('EXISTS', key(q, 'th:ids')) == 1 then
  call('HSET', at, 'id', next_id, 'key', keys[1], 'held', held[1])
end
th.finish()
for flow in pairs(flows) do names[#names + 1] = flow end
return {looked, restored, shown, doubtful, located, next_id == '' and 1 or 0, names}
