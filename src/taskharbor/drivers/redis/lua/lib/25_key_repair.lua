-- Keys of a queue that another program wrote over. Lua has no rollback: a command that fails half-way would leave jobs in no list. So
-- a script checks a key before it first uses it. A value of the wrong type is moved to `th:damaged:<name>` and recorded in
-- `th:damaged`; the queue goes on without it.

local KINDS = {
  wait = 'list', failed = 'list', completed = 'list', delayed = 'zset', active = 'zset', ['groups:ready'] = 'zset',
  ['th:prio'] = 'zset', ['th:done'] = 'zset', ['th:cancelled'] = 'zset', ['th:ids'] = 'zset', ['th:blocked'] = 'zset',
  ['th:keys'] = 'hash', ['th:watched'] = 'hash', ['th:held'] = 'hash', ['th:kept'] = 'zset', ['th:flows'] = 'zset',
  ['th:followed'] = 'zset',
}
local checked_keys = {}      -- key → true

local function kind_of(at)
  return call('TYPE', at).ok
end

-- `name` is the key without the queue, `kind` what was found there.
local function move_aside(q, name, kind)
  local noted = key(q, 'th:damaged')
  call('RENAME', key(q, name), key(q, 'th:damaged:' .. name))
  if kind_of(noted) ~= 'hash' then call('DEL', noted) end
  call('HSET', noted, name, kind)
end

-- The name of a key that is known to hold a value of the right type, or none.
local function safe_key(q, name, wanted)
  local at = key(q, name)
  if not checked_keys[at] then
    checked_keys[at] = true
    local kind = kind_of(at)
    if kind ~= 'none' and kind ~= (wanted or KINDS[name]) then move_aside(q, name, kind) end
  end
  return at
end

local function group_list(q, gid)
  return safe_key(q, 'g:' .. gid .. ':wait', 'list')
end

-- The next number in the order of arrival of a queue; of `count` numbers the last.
function th.next_arrival(q, count)
  local at = key(q, 'th:seq')
  local number = redis.pcall('INCRBY', at, count or 1)
  if type(number) == 'number' then return number end
  call('SET', safe_key(q, 'th:seq', 'string'), n(th.now))     -- above all numbers so far, which count from 1
  return call('INCRBY', at, count or 1)
end
