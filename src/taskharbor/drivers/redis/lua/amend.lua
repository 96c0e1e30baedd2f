-- Change stored jobs that are not running.
-- jobs: {id, queue or false, deliveries, edits, new values by field}; the fields: payload, due_ms (number or false), th_pri, th_max,
-- timeout_ms with th_x, last_error, th_reason, th_trail, th_note. Returns for each 0: changed, 1: no such job, 2: it was reserved or amended since, else text: the state that cannot
-- be changed. A call that had to search long lists stops early, and returns results only for the jobs it came to.
-- without: 99_sweep
local jobs = unpack(ARGS, 4)
even_if_full()

-- Why a job cannot be changed, in the contract's words; nil if it can.
local function refused(job)
  local state = job.state or ''
  if state == 'completed' then return 'done' end
  return (state == 'active' or state == 'wait' and job.th_xt) and 'under a lease' or nil
end

-- The new values as they are stored. max_attempts is stored twice: as it is, and as foreign clients see it.
local function stored_fields(job, values)
  local fields = {'th_ed', n(whole(job.th_ed) + 1), 'th_f', '1'}
  for _, name in ipairs({'payload', 'timeout_ms', 'th_x', 'last_error', 'th_reason', 'th_trail', 'th_note'}) do
    if values[name] then add(fields, name, values[name]) end
  end
  if values.payload and job.th_memo then add(fields, 'th_memo', '') end
  if values.th_pri then add(fields, 'th_pri', n(values.th_pri)) end
  if values.th_max then
    add(fields, 'th_max', n(values.th_max), 'max_attempts',
        th.shown_max(whole(job.attempt), values.th_max, (th.counters(job))))
  end
  return fields
end

local function change(q, id, job, deliveries, edits, values)
  local why = refused(job)
  if why then return why end
  local _, delivered = th.counters(job)
  if delivered ~= deliveries or whole(job.th_ed) ~= edits then return 2 end
  local fields, run_at = stored_fields(job, values), values.due_ms
  if values.payload and job.th_memo then call('DEL', key(q, 'th:memo:' .. id)) end     -- what was done for the old one
  if run_at == nil then run_at = finite(job.due_ms) or false end
  local moves = values.due_ms ~= nil or values.th_pri
  if moves and (job.state == 'wait' or job.state == 'delayed') then
    th.remove(q, id, job)
    job.pri = values.th_pri or job.pri
    th.place(q, id, job, run_at or nil, fields)
  else
    if values.due_ms ~= nil then add(fields, 'due_ms', run_at and n(run_at) or '') end
    write(q, id, fields)
  end
  return 0
end

local results = {}
for index, item in ipairs(jobs) do
  if th.searched >= 100000 then break end
  local id, q = item[1], item[2] or th.locate(item[1])
  local job = q and th.load(q, id)
  results[index] = job and change(q, id, job, item[3], item[4], item[5]) or 1
end
th.finish()
return results
