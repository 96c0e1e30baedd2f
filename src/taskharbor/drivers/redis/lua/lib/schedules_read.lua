-- Schedules, for the scripts that name this fragment. A queue has its rows in the hash `th:schedules`: name → the moment of `next_at`
-- (microseconds since 1970 in 18 digits; 18 dashes: never), the revision, a line feed, the body. Two sorted sets of equal scores order
-- them: `th:schedules:names` by name, `th:schedules:due` by place, which is moment and name. The index of the whole store says where a
-- name has its row: it is a sorted set of entries, each name, line feed, queue, line feed, claim. On one server a claim is empty; on a
-- Cluster see cluster_schedules.py. No name has a line feed or a smaller character, so entries are in the order of names.
-- A row or an entry that cannot be read counts as none, and is replaced.

local INDEX = '{th:schedules}:names'

-- The revision and the place of a row; its place is false if it is never due. nil if there is no row.
function th.read_schedule(name, value)
  local moment, line_feed = string.sub(value or '', 1, 18), value and string.find(value, '\n', 19, true)
  if not line_feed then return nil end
  local is_never = moment == '------------------'
  if not is_never and (string.find(moment, '%D') or moment > '253402300799999999') then return nil end
  local revision = string.sub(value, 19, line_feed - 1)
  if #revision == 0 or #revision > 255 or not is_text(revision) then return nil end
  if string.find(revision, '[%z\1-\31\127{}]') or string.find(revision, '\194[\128-\159]') then return nil end
  return revision, not is_never and moment .. name
end

function th.schedule(q, name)
  return th.read_schedule(name, try('HGET', key(q, 'th:schedules'), name))
end

-- The entry of a name in the index, and the queue that it names; nil if there is none.
function th.schedule_entry(name)
  local found = try('ZRANGEBYLEX', INDEX, '[' .. name .. '\n', '(' .. name .. '\11', 'LIMIT', '0', '1')
  local entry = found and found[1]
  local q = entry and string.match(entry, '^[^\n]*\n([^\n]+)\n[^\n]*$')
  if q then return entry, q end
  return nil
end

-- What follows is for a Cluster (cluster_schedules.py). A row is prepared under a token, which begins with the time of that server in ms.
local function server_ms()
  local clock = call('TIME')
  return clock[1] * 1000 + floor(clock[2] / 1000)
end

function th.new_token(random)
  return format('%013.0f', server_ms()) .. random
end

-- Whether a token was made longer than `patience_ms` ago.
function th.is_old(token, patience_ms)
  return (tonumber(string.sub(token, 1, 13)) or 0) < server_ms() - patience_ms
end

-- The tokens of rows that were prepared here longer ago than `slow_ms`, whose client may have died.
function th.stuck_schedules(q, slow_ms)
  local at, stuck = key(q, 'th:schedules:coming'), {}
  if (try('HLEN', at) or 0) == 0 then return stuck end
  for _, token in ipairs(call('HKEYS', at)) do
    if #stuck < 100 and th.is_old(token, slow_ms) then stuck[#stuck + 1] = token end
  end
  return stuck
end
