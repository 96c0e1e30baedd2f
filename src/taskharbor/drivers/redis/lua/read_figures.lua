-- Read the figures of some hours, a slice in each call.
-- names: the hashes to read, or false: those that exist from the name `first` on (exclusive if it begins with a bracket) up to before `last`.
-- Returns the moment before which figures count no longer, names and contents of the hashes by turns, and the name to go on after, or
-- false: that was all.
-- needs: 10_keys
local names, first, last = unpack(ARGS, 4)
local MAX_HASHES = 100
local results, prefix, more = {}, '{th:fig}:at:', false
if not names then
  names = try('ZRANGEBYLEX', '{th:fig}:hours', first, last, 'LIMIT', 0, MAX_HASHES) or {}
  more = #names == MAX_HASHES and names[MAX_HASHES]
end
for _, name in ipairs(names) do
  local found = try('HGETALL', prefix .. name)
  if found and #found > 0 then
    results[#results + 1] = name
    results[#results + 1] = found
  end
end
return {try('GET', '{th:fig}:oldest') or '0', results, more}
