-- Read entries of the audit, the last one first, a slice in each call.
-- start: the place before which they lie; stop: the first place that counts; by: who, or false: anyone; most: how many to return; looks: how
-- many places to look at.
-- Returns place and data of each entry by turns, how many places were looked at, the last of these, and 1 if there are more.
-- needs: 10_keys
local start, stop, by, most, looks = unpack(ARGS, 4)
local MAX_BYTES = 1000000      -- of values that are read before a script ends
local places = try('ZRANGE', '{th:audit}:order', '(' .. start, '[' .. stop, 'BYLEX', 'REV', 'LIMIT', 0, looks + 1) or {}
local found, bytes, looked = {}, 0, 0
for _, place in ipairs(places) do
  if looked == looks or #found >= 2 * most or bytes >= MAX_BYTES then break end
  looked = looked + 1
  local line_feed = string.find(place, '\n', 19, true)
  local who = line_feed and string.sub(place, line_feed + 1)
  if who and (not by or who == by) then
    local value = try('HGET', '{th:audit}:entries', string.sub(place, 19, line_feed - 1))
    local head = string.sub(place, 1, 18) .. who .. '\n'
    if value and string.sub(value, 1, #head) == head then      -- else another program wrote it
      found[#found + 1] = place
      found[#found + 1] = string.sub(value, #head + 1)
      bytes = bytes + #value
    end
  end
end
return {found, looked, places[looked] or false, looked < #places and 1 or 0}
