-- Begin to count children. In: mark, how many, how long the counter lives. Out: OK. The keys are those of every OmniQ
-- client; the marker of an earlier count of that name is deleted.
unless_full()
local mark, expected, ttl = argument[3], argument[4], argument[5]
local count_at, done_at, mark_at = base .. ':count', base .. ':done', base .. ':th:begun'
if call('EXISTS', count_at) == 1 then
  if call('GET', mark_at) == mark then return 'OK' end
  return refuse('ALREADY_INIT')
end
call('DEL', done_at, base .. ':th:over')
call('SET', count_at, n(expected), 'PX', n(ttl))
call('SET', mark_at, mark, 'PX', n(ttl))
return 'OK'
