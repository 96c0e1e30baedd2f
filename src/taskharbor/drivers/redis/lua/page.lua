-- queue, after which id (empty: from the first), how many → records in the order of ids, whether the index goes on behind
-- them, and the last id that was looked at.
-- without: 99_sweep
local args = cmsgpack.unpack(ARGV[1])
local q, after, count = args[1], args[2], args[3]
local ids = call('ZRANGEBYLEX', key(q, 'th:ids'), after == '' and '-' or '(' .. after, '+', 'LIMIT', 0, count)
local answers = {}
for _, id in ipairs(ids) do
  local found = th.whole_record(q, id)
  if found then answers[#answers + 1] = found end
end
return {answers, #ids == count and 1 or 0, ids[#ids] or ''}
