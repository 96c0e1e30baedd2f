-- Returns for each job {id, queue or false} its record (see th.whole_record), or false. brief: without payload, result and trail. skip: what the
-- state field of records holds that are not wanted; false: all are.
-- without: 80_store 95_fence 98_housekeeping 99_sweep
local jobs, brief, skip = unpack(ARGS, 4)
local results, skipped = {}, {}
for _, state in ipairs(skip or {}) do skipped[state] = true end
for index, item in ipairs(jobs) do
  local q = item[2] or th.locate(item[1])
  results[index] = q and th.whole_record(q, item[1], brief, skipped) or false
end
return results
