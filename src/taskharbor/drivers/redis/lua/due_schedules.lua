-- The places of schedules that are due, in order, some of each queue.
-- after: the place behind which they lie, or false; before: the moment before which they lie, in 18 digits; count: how many of each queue.
-- Returns {number of its queue, place} of the first that is not due, if there is one; and {number of the queue, places} of each that has
-- due ones.
-- needs: 10_keys 28_utf8
-- with: schedules_read
local queues, after, before, count = unpack(ARGS, 4)
local upcoming, upcoming_q, found = nil, nil, {}

-- Only moments are compared here: Lua would compare other texts by the rules of a language.
local function is_before(place, moment)
  return string.sub(place, 1, 18) < moment
end

for index, q in ipairs(queues) do
  local at = key(HOME, 'due:' .. q)
  local first = try('ZRANGEBYLEX', at, '-', '+', 'LIMIT', '0', '1')
  local following = first and first[1]
  if following and is_before(following, before) then
    local places = call('ZRANGEBYLEX', at, after and '(' .. after or '-', '(' .. before, 'LIMIT', '0', count)
    if #places > 0 then found[#found + 1] = {index, places} end
    following = call('ZRANGEBYLEX', at, '[' .. before, '+', 'LIMIT', '0', '1')[1]
  end
  if following and (not upcoming or is_before(following, string.sub(upcoming, 1, 18))) then
    upcoming, upcoming_q = following, index
  end
end
return {upcoming and {{upcoming_q, upcoming}} or {}, found}
