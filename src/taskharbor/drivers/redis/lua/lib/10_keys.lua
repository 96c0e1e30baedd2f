-- What every script begins with: the table `th`, names of keys, numbers as text, calls with many arguments.
-- Nothing here changes a job. The first three arguments are the same for all scripts:
--   now      the time of the call in milliseconds; 0 where the script does not depend on it
--   cluster  whether this is a Redis Cluster, where a script reaches the keys of one hash slot only
--   home     on a Cluster the hash tag of the keys that the script uses, usually a queue; '' on one server
-- A script names the others in one line, which scripts.py reads: so they have the same names on both sides. `false`: none.

local ARGS = cmsgpack.unpack(ARGV[1])
local th = {now = ARGS[1], cluster = ARGS[2], home = ARGS[3]}
local call = redis.call
local format, floor, min, max = string.format, math.floor, math.min, math.max

-- Redis judges a script by its first write. There a replica refuses it, and a full server (maxmemory) refuses what may need
-- memory; later writes pass. So every script that writes begins with one of these two. They change nothing: the key that a
-- script is given never exists.
local function even_if_full()
  call('DEL', KEYS[1])
end

local function unless_full()
  call('ZADD', KEYS[1], 'XX', '0', '')
end

local WAKE = 'th:wake'       -- the channel of hints; scripts.tuned() appends the number of any database but 0
local DEFAULT_MAX = 5        -- max_attempts that OmniQ clients see of a job that sets none
local MARGIN = 0.001         -- between the turns of two groups that became ready in the same millisecond

-- Lua prints large numbers as 1.7e+12.
local function n(number)
  return format('%.0f', number)
end

-- A number that can be computed with and written again; nil for text, NaN and infinity.
local function finite(value)
  local number = tonumber(value)
  return number and number > -1e15 and number < 1e15 and number or nil
end

local function key(q, name)
  return '{' .. q .. '}:' .. name
end

local function job_key(q, id)
  return '{' .. q .. '}:job:' .. id
end

local TURNS, QUEUES, WATCHED = '{th}:turns', '{th}:queues', '{th}:watched'

-- Like `call`, for a command that reads: nil where the key holds another type of value than it should.
local function try(...)
  local found = redis.pcall(...)
  if type(found) ~= 'table' or not found.err then return found end
  if not string.find(found.err, 'WRONGTYPE', 1, true) then error(found.err) end
  return nil
end

-- Like `call`, for the few keys that all queues share: a value of another type, which another program wrote there, is moved to
-- `<key>:damaged` first.
local function shared(command, at, ...)
  local found = redis.pcall(command, at, ...)
  if type(found) ~= 'table' or not found.err then return found end
  if not string.find(found.err, 'WRONGTYPE', 1, true) then error(found.err) end
  call('RENAME', at, at .. ':damaged')
  return call(command, at, ...)
end

-- Run a command for a list of arguments of any length; returns the sum of what it counted. Lua's stack holds some 8000 values;
-- 4000 keeps pairs together.
local function many(command, at, list)
  local size, sum = #list, 0
  if size == 0 then return 0 end
  if size <= 4000 then return call(command, at, unpack(list)) end
  for first = 1, size, 4000 do
    local reply = call(command, at, unpack(list, first, min(first + 3999, size)))
    if type(reply) == 'number' then sum = sum + reply end
  end
  return sum
end
