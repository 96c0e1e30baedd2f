-- Failed jobs begin anew. In: mark, ids. Out: id, '' or a code, id, …
even_if_full()
local mark, ids = unpack(ARGS, 4)

local function again(id)
  if id == '' then return 'BAD_JOB_ID' end
  local job = th.load(q, id)
  if not job then return 'NO_JOB' end
  if earlier_reply(id, mark) then return '' end
  if job.state ~= 'failed' then return 'NOT_FAILED' end
  local _, deliveries = th.counters(job)
  local real = th.real_max(job)
  local fields = {
    'attempt', '0', 'max_attempts', th.shown_max(0, real, 0), 'due_ms', '', 'th_att', '0', 'th_fail', '0', 'th_lost', '',
    'th_off', n(deliveries), 'th_st', '', 'th_reason', '', 'th_fin', '', 'failed_ms', '',
  }
  store_reply(fields, mark, 'OK')
  th.remove(q, id, job)
  th.clear_lease(fields, job)
  append(id, job, fields)
  return ''
end

return for_each(ids, again)
