-- Schedules, for the scripts that name this fragment. All of them are in one hash slot, so a script reaches them on a Cluster, too:
--   rows           hash: name → the moment of `next_at` (microseconds since 1970 in 18 digits; 18 dashes: never), the revision, a line
--                  feed, the queue, a line feed, the body
--   names          sorted set of equal scores: the names, in order
--   names:<queue>  the same for the rows of a queue
--   due:<queue>    the places of the rows of a queue that have a `next_at`: moment, name
-- A row that cannot be read counts as none, and is replaced.

local HOME = 'th:schedules'
local NEVER, LAST = '------------------', '253402300799999999'

local function is_name(text)
  return #text <= 255 and is_text(text) and not string.find(text, '[%z\1-\31\127{}]') and not string.find(text, '\194[\128-\159]')
end

-- A row: its revision, its queue, and `sets`, which has the member for each sorted set that must have the row. nil if there is none.
function th.read_schedule(name, value)
  local moment, revision, q = string.match(value or '', '^(' .. string.rep('.', 18) .. ')([^\n]+)\n([^\n]+)\n')
  if not moment or not is_name(revision) or not is_name(q) then return nil end
  if moment ~= NEVER and (string.find(moment, '%D') or moment > LAST) then return nil end
  local sets = {names = name, ['names:' .. q] = name}
  if moment ~= NEVER then sets['due:' .. q] = moment .. name end
  return {revision = revision, q = q, sets = sets}
end

function th.schedule(name)
  return th.read_schedule(name, try('HGET', key(HOME, 'rows'), name))
end
