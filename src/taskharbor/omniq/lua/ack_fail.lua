-- Ack a failure. In: mark, id, token, error or ''. Out: RETRY, due_ms or FAILED.
even_if_full()
local mark, id, token, message = unpack(ARGS, 4)
local earlier = earlier_reply(id, mark)
if earlier == 'FAILED' then return {'FAILED'} end
if earlier then return {'RETRY', earlier} end
local job, code = held(id, token)
if not job then return refuse(code) end
local fields = {'th_lost', ''}
count(job, fields, 1)
if message ~= '' then add(fields, 'last_error', message, 'last_error_ms', n(th.now)) end
call('DEL', key(q, 'th:grant:' .. token))
if is_last(job) then
  add(fields, 'failed_ms', n(th.now), 'th_st', 'f' .. token, 'th_reason', message ~= '' and message or 'failed')
  store_reply(fields, mark, 'FAILED')
  th.dead(q, id, job, fields)
  th.finish()
  return {'FAILED'}
end
local due = th.now + whole(call('HGET', job_key(q, id), 'backoff_ms'))
th.remove(q, id, job)
th.clear_lease(fields, job)
add(fields, 'th_st', 'r' .. token)
store_reply(fields, mark, n(due))
delay(id, due, fields)
th.finish()
return {'RETRY', n(due)}
