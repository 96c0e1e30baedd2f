-- One step of a schedule's way between the hash slots of a Cluster, in the queue `home` (see cluster_schedules.py).
--   prepare  data: a row and its jobs (arrive_schedule.lua), kept under a token; returns the token. A full server refuses it
--   leave    the row of a name, if it has the revision `expect`, is removed; to `target` and `token` if it moves. Returns 1: done, 0: it has
--            another revision, 2: there is none, 3: it has the revision `wanted`, 4: it was prepared longer than `patience_ms` ago
--   left     what was noted of where it went is forgotten, if it went by this token
--   drop     what was prepared under the token is forgotten
--   look     returns whether there is a row of this name, where it went (queue, line feed, token, or false), what is prepared under the
--            token (or false), and whether that is older than `patience_ms`
-- needs: 10_keys 25_key_repair 28_utf8
-- with: schedules_read schedules_write
local now, cluster, home, operation, name, token, data, expect, wanted, target, patience_ms = unpack(cmsgpack.unpack(ARGV[1]))
if operation == 'prepare' then unless_full() elseif operation ~= 'look' then even_if_full() end
local coming, left = key(home, 'th:schedules:coming'), key(home, 'th:schedules:left')

if operation == 'look' then
  return {th.schedule(home, name) and 1 or 0, try('HGET', left, name) or false, try('HGET', coming, token) or false,
          th.is_old(token, patience_ms) and 1 or 0}
end
safe_key(home, 'th:schedules:coming', 'hash')
safe_key(home, 'th:schedules:left', 'hash')
if operation == 'prepare' then
  token = th.new_token(token)
  call('HSET', coming, token, data)
  return token
elseif operation == 'drop' then
  return call('HDEL', coming, token)
elseif operation == 'left' then
  local went = call('HGET', left, name)
  return went and string.match(went, '[^\n]*$') == token and call('HDEL', left, name) or 0
end
local revision, place = th.schedule(home, name)
if not revision then
  local went = call('HGET', left, name)
  return token and went == target .. '\n' .. token and 1 or 2      -- the reply to the first try was lost
end
if revision == wanted then return 3 end
if revision ~= expect then return 0 end
if token and th.is_old(token, patience_ms) then return 4 end
th.remove_schedule(home, name, place)
if token then call('HSET', left, name, target .. '\n' .. token) end
return 1
