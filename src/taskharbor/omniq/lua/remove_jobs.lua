-- Remove jobs from a lane. In: the lane, ids. Out: id, '' or a code, id, … Everything is checked before anything is
-- changed. Searching a list takes time that grows with the list.
even_if_full()
local lane, ids = unpack(ARGS, 4)
local STATES = {wait = 'wait', gwait = 'wait', delayed = 'delayed', failed = 'failed', completed = 'completed'}

local function stands(id, job)
  if lane == 'gwait' then return call('LPOS', group_key(q, job.gid, 'wait'), id) end
  if lane == 'wait' then
    return job.pri ~= 0 and call('EXISTS', key(q, 'th:prio')) == 1 or call('LPOS', key(q, 'wait'), id)
  end
  if lane == 'delayed' then return call('ZSCORE', key(q, 'delayed'), id) end
  if lane == 'completed' and call('ZSCORE', key(q, 'th:done'), id) then return true end
  return call('LPOS', key(q, lane), id)
end

local function remove(id)
  if id == '' then return 'BAD_JOB_ID' end
  local job = th.load(q, id)
  if not job then return 'NO_JOB' end
  if job.state == 'active' or call('ZSCORE', key(q, 'active'), id) then return 'ACTIVE' end
  if job.state ~= STATES[lane] then return 'LANE_MISMATCH' end
  if (lane == 'gwait' and not job.gid) or (lane == 'wait' and job.gid) then return 'LANE_MISMATCH' end
  if not stands(id, job) then return 'NOT_IN_LANE' end
  if th.open_dependents(q, id) > 0 then return 'NEEDED' end
  th.forget(q, id, job)
  return ''
end

return for_each(ids, remove)
