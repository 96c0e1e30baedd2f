-- Put records back that are in no list or set. records: {id, state, since when}.
-- Returns how many were put back: those that nobody has changed since.
-- without: 80_store 90_reserve 95_fence 97_read
local q, records = unpack(ARGS, 4)
even_if_full()
local number = 0
for _, one in ipairs(records) do
  local id = one[1]
  local job = th.load(q, id)
  if job and (job.state or '') == one[2] and n(th.since(q, id)) == one[3] then
    th.restore(q, id, job)
    number = number + 1
  end
end
if number > 0 then th.count_repairs(q, number, 0) end
th.finish()
return number
