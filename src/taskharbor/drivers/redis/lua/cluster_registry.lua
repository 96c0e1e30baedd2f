-- The keys of a Cluster that belong to no queue: locations of ids, flows, lists of queues. at: the key; values: see below.
--   claim  ids and queues by turns → for each id the queue stored before, or false; the queue is stored if there was none
--   spawn  the same for jobs of an outcome, which a full server does not refuse
--   note   ids and queues by turns: stored, whatever was there
--   gone   ids and queues by turns: forgotten, if that is what was stored and it was not claimed again lately
--   unstored  seconds, then ids and queues by turns: they have no record. Marked; forgotten if marked that many seconds ago
--   stored    ids: no longer marked
--   enter  queues → the flow's generation and whether it is cancelled; they are among the flow's queues now
--   left   queue: no longer among them
--   cancel nothing → the flow's generation and its queues, and it is flagged; false if it has none
--   list   queues: added to a list of queues, with the present time
--   drop   queue, seconds: removed from the list, unless it was listed again since
-- needs: 10_keys 12_locations 13_locate
local operation, at, values = unpack(ARGS, 4)
if operation == 'claim' then unless_full() else even_if_full() end
local results = {}
if operation == 'list' then
  for _, q in ipairs(values) do call('ZADD', at, call('TIME')[1], q) end
  return #values
elseif operation == 'drop' then
  local score = call('ZSCORE', at, values[1])
  if not score or tonumber(score) > call('TIME')[1] - values[2] then return 0 end
  return call('ZREM', at, values[1])
end
if operation == 'enter' then
  for _, q in ipairs(values) do call('HSET', at, '=' .. q, '1') end
  local clock = call('TIME')
  call('HSETNX', at, '#', clock[1] .. '.' .. clock[2])
  return {call('HGET', at, '#'), call('HEXISTS', at, '!')}
elseif operation == 'left' or operation == 'cancel' then
  if operation == 'left' then call('HDEL', at, '=' .. values[1]) end
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
if operation == 'stored' then return many('ZREM', marked, values) end
if operation == 'unstored' then
  local clock = tonumber(call('TIME')[1])
  for index = 2, #values, 2 do
    local id = values[index]
    local since = stored_queue(id, at) == values[index + 1] and tonumber(call('ZSCORE', marked, id) or clock + 1)
    if since and since <= clock - values[1] then
      call('HDEL', location_key(id, at), id)
      call('ZREM', marked, id)
    elseif since then
      call('ZADD', marked, 'NX', clock, id)
    end
  end
  return #values
end
-- A client that claims a known id may be about to store it again. So deleting the old job leaves the location, for as long as a message
-- that brings the new one may be under way (outbox.py). If the job never comes, the location is forgotten (cluster_registry.py).
local CLAIMED_FOR = 86400      -- seconds
local claimed, clock, any_marked = at .. ':claimed', tonumber(call('TIME')[1]), call('EXISTS', marked) == 1
for index = 1, #values, 2 do
  local id, q = values[index], values[index + 1]
  local noted = stored_queue(id, at)
  local is_wanted = operation == 'claim' or operation == 'spawn'
  if operation == 'note' or (is_wanted and not noted) then store_location(location_key(id, at), {id}, q) end
  if is_wanted and noted then call('ZADD', claimed, clock, id) end
  if operation == 'gone' and noted == q and not call('ZSCORE', claimed, id) then call('HDEL', location_key(id, at), id) end
  if any_marked then call('ZREM', marked, id) end
  results[#results + 1] = noted
end
local old = call('ZRANGEBYSCORE', claimed, '-inf', clock - CLAIMED_FOR, 'LIMIT', 0, 10)
if #old > 0 then call('ZREM', claimed, unpack(old)) end
return results
