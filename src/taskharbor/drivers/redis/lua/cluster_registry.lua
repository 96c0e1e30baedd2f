-- The keys that belong to no queue, on a Cluster. operation, key, then
--   claim  ids and queues by turns → for each id the queue it was noted with before, or false; it is noted if it was not
--   spawn  the same for jobs that belong to an outcome, which a full server does not refuse
--   note   ids and queues by turns: noted, whatever was there
--   gone   ids and queues by turns: forgotten, if that is what was noted and nobody has claimed it again lately
--   unstored  seconds, ids and queues by turns: they have no record; forgotten if they were marked so long ago, else marked
--   stored    ids: not marked
--   enter  queues → the run's generation and whether it is cancelled; they are among its queues now
--   left   queue: no longer among them
--   cancel nothing → the run's generation and its queues, and it is flagged; false if it has none
--   list   queues: among the known ones, as of now
--   drop   queue, seconds: no longer among them, unless somebody has listed it since
-- without: 15_omniq_stats 16_id_pages 18_omniq_index 20_bookkeeping 25_key_repair 26_id_pages_walk 28_utf8 30_records 40_groups 45_plain_jobs 46_plain_acks 47_plain_leases 50_placement 60_flows 70_terminal 80_store 90_reserve 95_fence 97_read 98_housekeeping 99_sweep
local args = cmsgpack.unpack(ARGV[1])
local operation, at, rest = args[1], args[2], args[3]
if operation == 'claim' then unless_full() else even_if_full() end
local answers = {}
if operation == 'list' then
  for _, q in ipairs(rest) do call('ZADD', at, call('TIME')[1], q) end
  return #rest
elseif operation == 'drop' then
  local score = call('ZSCORE', at, rest[1])
  if not score or tonumber(score) > call('TIME')[1] - rest[2] then return 0 end
  return call('ZREM', at, rest[1])
end
if operation == 'enter' then
  for _, q in ipairs(rest) do call('HSET', at, '=' .. q, '1') end
  local clock = call('TIME')
  call('HSETNX', at, '#', clock[1] .. '.' .. clock[2])
  return {call('HGET', at, '#'), call('HEXISTS', at, '!')}
elseif operation == 'left' or operation == 'cancel' then
  if operation == 'left' then call('HDEL', at, '=' .. rest[1]) end
  local queues = {call('HGET', at, '#')}
  for _, field in ipairs(call('HKEYS', at)) do
    if string.sub(field, 1, 1) == '=' then queues[#queues + 1] = string.sub(field, 2) end
  end
  if #queues < 2 then
    call('DEL', at)
    return false
  end
  if operation == 'cancel' then call('HSET', at, '!', '1') end
  return queues
end
local marked = at .. ':marked'
if operation == 'stored' then return many('ZREM', marked, rest) end
if operation == 'unstored' then
  local clock = tonumber(call('TIME')[1])
  for index = 2, #rest, 2 do
    local id = rest[index]
    local since = noted_queue(id, at) == rest[index + 1] and tonumber(call('ZSCORE', marked, id) or clock + 1)
    if since and since <= clock - rest[1] then
      call('HDEL', note_key(id, at), id)
      call('ZREM', marked, id)
    elseif since then
      call('ZADD', marked, 'NX', clock, id)
    end
  end
  return #rest
end
-- Whoever claims an id that is noted may be about to store it again: what forgets its past leaves the note, for as long as a
-- message that brings the job may be under way (outbox.py). If nobody stores it, it is forgotten like any other (cluster_notes.py).
local CLAIMED_FOR = 86400      -- seconds
local claimed, clock, any_marked = at .. ':claimed', tonumber(call('TIME')[1]), call('EXISTS', marked) == 1
for index = 1, #rest, 2 do
  local id, q = rest[index], rest[index + 1]
  local noted = noted_queue(id, at)
  local is_wanted = operation == 'claim' or operation == 'spawn'
  if operation == 'note' or (is_wanted and not noted) then note_queue(note_key(id, at), {id}, q) end
  if is_wanted and noted then call('ZADD', claimed, clock, id) end
  if operation == 'gone' and noted == q and not call('ZSCORE', claimed, id) then call('HDEL', note_key(id, at), id) end
  if any_marked then call('ZREM', marked, id) end
  answers[#answers + 1] = noted
end
local old = call('ZRANGEBYSCORE', claimed, '-inf', clock - CLAIMED_FOR, 'LIMIT', 0, 10)
if #old > 0 then call('ZREM', claimed, unpack(old)) end
return answers
