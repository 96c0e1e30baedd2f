-- now, cluster, home, queue, records (id, state, since when) that stand in no lane → how many of them were put back: those
-- that nobody has touched since.
-- without: 97_read
local args = cmsgpack.unpack(ARGV[1])
even_if_full()
th.begin(args[1], args[2], args[3])
local q, number = args[4], 0
for _, one in ipairs(args[5]) do
  local id = one[1]
  local job = th.load(q, id)
  if job and (job.state or '') == one[2] and n(th.stood_at(q, id)) == one[3] then
    th.restore(q, id, job)
    number = number + 1
  end
end
if number > 0 then th.note_mended(q, number, 0) end
th.finish()
return number
