-- Store a memo of a job whose lease holds, in place of the one with its name. Returns 0, or the number of the refusal.
-- without: 80_store 97_read 98_housekeeping 99_sweep
local q, id, token, name, value = unpack(ARGS, 4)
even_if_full()
local job = th.load(q, id)
local refused = th.fence(job, token)
if refused > 0 then return refused end
local _, deliveries = th.counters(job)
if job.th_memo ~= '1' then
  call('DEL', key(q, 'th:memo:' .. id))      -- what is there is left from another job
  write(q, id, {'th_memo', '1', 'th_f', '1'})
end
call('HSET', safe_key(q, 'th:memo:' .. id, 'hash'), name, n(th.now) .. ' ' .. n(deliveries) .. ' ' .. value)
th.finish()
return 0
