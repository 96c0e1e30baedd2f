-- Begin to count children. In: mark, how many, how long the counter lives. Out: OK. The keys are those of every OmniQ
-- client; the marker of an earlier count of that name is deleted.
unless_full()
local mark, expected, ttl = unpack(ARGS, 4)
local count_at, done_at, mark_at = key(q, 'count'), key(q, 'done'), key(q, 'th:begun')
if call('EXISTS', count_at) == 1 then
  if call('GET', mark_at) == mark then return 'OK' end
  return refuse('ALREADY_INIT')
end
call('DEL', done_at, key(q, 'th:over'))
call('SET', count_at, n(expected), 'PX', n(ttl))
call('SET', mark_at, mark, 'PX', n(ttl))
return 'OK'
