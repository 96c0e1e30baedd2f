-- Keys of a queue that another program wrote over. Lua has no rollback: a command that fails half way leaves jobs in no
-- lane. So a lane is looked at before a script first uses it: what does not belong there is moved out of the way, to
-- `th:damaged:<name>`, and noted in `th:damaged`; the queue goes on without it.

local KINDS = {
  wait = 'list', failed = 'list', completed = 'list', delayed = 'zset', active = 'zset', ['groups:ready'] = 'zset',
  ['th:prio'] = 'zset', ['th:done'] = 'zset', ['th:cancelled'] = 'zset', ['th:ids'] = 'zset', ['th:blocked'] = 'set',
  ['th:keys'] = 'hash', ['th:watched'] = 'hash', ['th:held'] = 'hash',
}
local looked_at = {}      -- key → true

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

-- The key of a queue, which holds what it should or nothing.
local function sound(q, name, wanted)
  local at = key(q, name)
  if not looked_at[at] then
    looked_at[at] = true
    local kind = kind_of(at)
    if kind ~= 'none' and kind ~= (wanted or KINDS[name]) then move_aside(q, name, kind) end
  end
  return at
end

local function group_list(q, gid)
  return sound(q, 'g:' .. gid .. ':wait', 'list')
end

-- The next number in the order of arrival of a queue; `count` numbers end with the one answered.
function th.next(q, count)
  local at = key(q, 'th:seq')
  local number = redis.pcall('INCRBY', at, count or 1)
  if type(number) == 'number' then return number end
  call('SET', sound(q, 'th:seq', 'string'), n(th.now))     -- beyond every number that was given: they count from 1
  return call('INCRBY', at, count or 1)
end
