-- One child is done. In: its id. Out: how many are left. The same child again changes nothing. At 0 the keys
-- are deleted, as other clients expect, but the counted children are kept for a while: a child whose worker died after the last
-- ack and before it acted on it gets 0 again.
even_if_full()
local child = unpack(ARGS, 4)
local count_at, done_at, over_at = key(q, 'count'), key(q, 'done'), key(q, 'th:over')
local left = tonumber(call('GET', count_at) or '')
if not left then
  if call('SISMEMBER', over_at, child) == 1 then return 0 end
  return refuse('NO_COUNTER')
end
if call('SADD', done_at, child) == 0 then return left end
local ttl = call('PTTL', count_at)
if ttl > 0 then call('PEXPIRE', done_at, ttl) end
left = call('DECR', count_at)
if left > 0 then return left end
call('DEL', over_at)
call('RENAME', done_at, over_at)
call('PEXPIRE', over_at, 86400000)
call('DEL', count_at, key(q, 'th:begun'))
return 0
