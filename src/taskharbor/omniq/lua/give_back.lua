-- Give back a job whose handler did not finish. In: mark, id, token. Out: OK. No attempt is spent: the
-- leases granted stay what they are, and one more may be granted.
even_if_full()
local mark, id, token = unpack(ARGS, 4)
if earlier_reply(id, mark) then return 'OK' end
local job, code = held(id, token)
if not job then return refuse(code) end
local fields = {'th_st', 'r' .. token, 'due_ms', '', 'max_attempts', n(max(1, whole(job.max_attempts)) + 1)}
count(job, fields, 0)
store_reply(fields, mark, 'OK')
call('DEL', key(q, 'th:grant:' .. token))
th.remove(q, id, job)
th.clear_lease(fields, job)
append(id, job, fields)
th.finish()
return 'OK'
