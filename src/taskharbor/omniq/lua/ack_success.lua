-- Ack a success. In: mark, id, token. Out: OK.
even_if_full()
local mark, id, token = unpack(ARGS, 4)
if earlier_reply(id, mark) then return 'OK' end
local job, code = held(id, token)
if not job then return refuse(code) end
local fields = {'completed_ms', n(th.now), 'th_st', 'a' .. token, 'th_lost', ''}
count(job, fields, 0)
store_reply(fields, mark, 'OK')
call('DEL', key(q, 'th:grant:' .. token))
th.done(q, id, job, fields)
th.finish()
return 'OK'
