-- Records of a queue in the order of their ids, after the id `after` ('': from the first).
-- Returns the records (see th.whole_record), the id to go on after (false: that was all), and how many pages of the index are lost.
-- without: 99_sweep
local now, cluster, home, q, after, count = unpack(cmsgpack.unpack(ARGV[1]))
local ids, last, lost = ids_after(q, after, count)
local results = {}
for _, id in ipairs(ids) do
  local found = th.whole_record(q, id)
  if found then results[#results + 1] = found end
end
return {results, last or false, #lost}
