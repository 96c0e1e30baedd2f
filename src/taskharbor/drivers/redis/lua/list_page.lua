-- queue, after which id (empty: from the first), how many → records in the order of ids, after which to go on (false: that was
-- all), and how many pages of the index were met that somebody took away.
-- without: 99_sweep
local args = cmsgpack.unpack(ARGV[1])
local q, after, count = args[1], args[2], args[3]
local ids, last, lost = ids_after(q, after, count)
local answers = {}
for _, id in ipairs(ids) do
  local found = th.whole_record(q, id)
  if found then answers[#answers + 1] = found end
end
return {answers, last or false, #lost}
