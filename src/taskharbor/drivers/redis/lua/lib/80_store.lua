-- Storing jobs, for enqueue and for what an outcome spawns. A job is an array (records.stored() makes it):
--   1 id  2 queue  3 type  4 payload  5 run_at or false  6 timeout in ms or 0  7 priority  8 attempts  9 max_attempts
--   10 key or false  11 group or false  12 group_limit  13 th_deps or false  14 flow or false  15 th_x or false
--   16 created_ms  17 on a Cluster what is known of its dependencies outside the call, see receive.link, or false
--   18 keep_for in microseconds, as text; 17 and 18 may be missing

-- Which of the jobs are known already: a table id → queue. Reads the locations once and the records once.
local function known_ids(jobs)
  local ids, keys, found = {}, {}, {}
  for index, job in ipairs(jobs) do
    ids[index] = job[1]
    keys[index] = job_key(job[2], job[1])
  end
  if #ids == 0 then return found end
  if not th.cluster then
    for _, id in ipairs(ids) do
      local q = stored_queue(id)
      if q and call('EXISTS', job_key(q, id)) == 1 then found[id] = q end
    end
  end
  local any = 0
  for first = 1, #keys, 4000 do any = any + call('EXISTS', unpack(keys, first, min(first + 3999, #keys))) end
  if any > 0 then
    for index, id in ipairs(ids) do
      if not found[id] and call('EXISTS', keys[index]) == 1 then found[id] = jobs[index][2] end
    end
  end
  return found
end
th.known_ids = known_ids

-- The id that has an idempotency key, if its record still exists.
function th.keyed(q, name)
  local id = call('HGET', safe_key(q, 'th:keys'), name)
  if id and call('EXISTS', job_key(q, id)) == 1 then return id end
  return nil
end

-- Add the ids of a call to the index, and store their locations.
local function note(jobs)
  local ids, names = {}, {}
  for _, job in ipairs(jobs) do
    local q, id = job[2], job[1]
    local list = ids[q]
    if not list then list = {}; ids[q] = list; names[#names + 1] = q end
    list[#list + 1] = id
  end
  for _, q in ipairs(names) do
    safe_key(q, 'th:ids')
    add_ids(q, ids[q])
    if not th.cluster then
      for at, some in pairs(by_location_hash(ids[q])) do store_location(at, some, q) end
      shared('ZADD', QUEUES, 'NX', n(th.now), q)
    end
  end
end

local function record_of(job, sto)
  local attempts, limit = job[8], job[9]
  local fields = {
    'id', job[1], 'payload', job[4], 'attempt', '0', 'max_attempts', th.shown_max(0, limit, attempts),
    'timeout_ms', job[6] > 0 and n(job[6]) or '60000', 'backoff_ms', '5000', 'created_ms', n(job[16]),
    'th_type', job[3], 'th_sto', n(sto),
  }
  if job[15] then add(fields, 'th_x', job[15]) end
  add(fields, 'th_f', (attempts ~= 0 or job[7] ~= 0 or job[10] or job[13] or job[18]) and '1' or job[14] and 'm' or 'p')
  if limit ~= 0 then add(fields, 'th_max', n(limit)) end
  if attempts ~= 0 then add(fields, 'th_fail', n(attempts)) end
  if job[11] then add(fields, 'gid', job[11]) end
  if job[7] ~= 0 then add(fields, 'th_pri', n(job[7])) end
  if job[10] then add(fields, 'th_key', job[10]) end
  if job[13] then add(fields, 'th_deps', job[13]) end
  if job[14] then add(fields, 'th_flow', job[14]) end
  if job[18] then add(fields, 'th_keep', job[18]) end
  return fields
end

-- Nearly every job: without dependencies, flow, group, key, priority or time.
local function store_plain(q, job, sto)
  local id = job[1]
  th.put_plain(job_key(q, id), id, job[4], job[3], job[6], job[9], job[15], job[16], sto, number_text(th.now))
  th.index(q, id, 'wait')
end

-- Any other job. It is placed when all records exist that an edge of the call may need.
local function store_other(q, job, sto, edges)
  local id, fields = job[1], record_of(job, sto)
  local standing = {gid = job[11] or nil, pri = job[7], th_sto = n(sto), th_deps = job[13] or nil,
                    th_flow = job[14] or nil, th_keep = job[18] or nil, modes = job[17]}
  if job[10] then call('HSET', safe_key(q, 'th:keys'), job[10], id) end
  if job[11] then
    call('SETNX', key(q, 'has_groups'), '1')
    if job[12] > 0 then th.set_group_limit(q, job[11], job[12]) end
  end
  if job[14] then th.enter_flow(q, id, job[14]) end
  if edges or job[14] then
    add(fields, 'state', 'blocked', 'updated_ms', n(th.now))
    if job[5] then add(fields, 'due_ms', n(job[5])) end
    write(q, id, fields)
    fields = {}
  end
  return {standing, fields}
end

-- Plain jobs whose records are written become ready.
local function append(q, plain)
  if #plain[q] == 0 then return end
  many('RPUSH', safe_key(q, 'wait'), plain[q])
  th.hint(q, #plain[q])
  plain[q] = {}
end

local function place_other(q, id, job, fields, run_at, sto, flows)
  local open = job.th_deps and th.link(q, id, job, job.modes) or 0
  local flow = job.th_flow
  if flow and th.flow_cancelled(q, flow, flows) then
    job.state = 'blocked'
    th.cancelled(q, id, job, {'th_reason', 'flow cancelled'})
  elseif open > 0 then
    block(q, id)
    th.index(q, id, false)
    if flow and th.is_stranded and th.is_stranded(q, id) then
      job.state = 'blocked'
      th.strand(q, id, job)
    end
  else
    th.place(q, id, job, run_at, fields, sto)
    th.hint(q)      -- also if it lies ahead: a worker that waits has to know until when
  end
end

-- Store jobs, none of which is known. `flows`: on a Cluster, what the client learned of the flows; see th.flow_cancelled.
function th.store(jobs, flows)
  if #jobs == 0 then return end
  local counts, seqs, plain, edges = {}, {}, {}, false
  for _, job in ipairs(jobs) do
    counts[job[2]] = (counts[job[2]] or 0) + 1
    edges = edges or job[13]
  end
  for q, count in pairs(counts) do
    th.move_due(q)
    seqs[q] = th.next_arrival(q, count) - count
    plain[q] = {}
    th.note_step(q, 'enqueue')
  end
  note(jobs)
  local others, stos = {}, {}
  for index, job in ipairs(jobs) do
    local q = job[2]
    stos[index] = seqs[q] + 1
    seqs[q] = stos[index]
    if not (job[5] or job[10] or job[11] or job[13] or job[14] or job[18]) and job[7] == 0 and job[8] == 0 then
      store_plain(q, job, stos[index])
    else
      others[index] = store_other(q, job, stos[index], edges)
    end
  end
  for index, job in ipairs(jobs) do     -- each to its place, in the order of the call
    local id, q, other = job[1], job[2], others[index]
    if not other then
      plain[q][#plain[q] + 1] = id
    else
      append(q, plain)
      place_other(q, id, other[1], other[2], job[5] or nil, stos[index], flows)
    end
  end
  for q in pairs(plain) do append(q, plain) end
end

-- Whether what a client planned with still holds: the jobs are unknown, and the needed ones exist and have not been handed over.
-- Nothing can be said of other hash slots.
function th.plan_holds(jobs, needed)
  if next(known_ids(jobs)) then return false end
  for _, job in ipairs(jobs) do
    if job[10] and th.keyed(job[2], job[10]) then return false end
  end
  for _, dependency in ipairs(needed) do
    local q, id = dependency[1], dependency[2]
    if not th.cluster or q == th.home then
      local found = fields_of(q, id, 'state', 'payload', 'th_heir', 'th_heirq')
      if not found[1] and not found[2] then return false end
      if found[3] and found[3] ~= '' and (th.cluster or call('EXISTS', job_key(found[4] or q, found[3])) == 1)
         and not dependency[3] then
        return false
      end
    end
  end
  return true
end

-- The jobs that this script can reach.
function th.jobs_here(jobs)
  if not th.cluster then return jobs end
  local here = {}
  for _, job in ipairs(jobs) do
    if job[2] == th.home then here[#here + 1] = job end
  end
  return here
end

local PARCEL = 200     -- jobs in a message

-- Store jobs, none of which is known, in whatever hash slots they belong: those that this script cannot reach go there by message, in
-- the same transaction. `handing`: queue, id and heir of a job that is handed over. Returns the number of the heir's message, if it
-- goes by one.
function th.store_everywhere(jobs, flows, handing)
  if not th.cluster then return th.store(jobs, flows) end
  local queues, parcels, number = {}, {}, nil
  local function send_off(q)
    local parcel = parcels[q]
    local posted = post(q, 'store', {parcel, flows or false, handing or false})
    for _, job in ipairs(parcel) do
      if handing and job[1] == handing[3] then number = posted end
    end
    parcels[q] = nil
  end
  for _, job in ipairs(jobs) do
    local q = job[2]
    if q ~= th.home then
      if not parcels[q] then
        parcels[q] = {}
        queues[#queues + 1] = q
      end
      table.insert(parcels[q], job)
      if #parcels[q] == PARCEL then send_off(q) end
    end
  end
  for _, q in ipairs(queues) do
    if parcels[q] then send_off(q) end
  end
  th.store(th.jobs_here(jobs), flows)
  return number
end

-- Jobs that came by message from another hash slot. One whose key was taken meanwhile becomes an alias of the job that has it: those
-- that wait for it are sent there. An alias is kept as long as a message may be under way, see 98_housekeeping.
function receive.store(q, jobs, flows, handing)
  local known, fresh = known_ids(jobs), {}
  for _, job in ipairs(jobs) do
    local id = job[1]
    local other = not known[id] and job[10] and th.keyed(q, job[10])
    if other then
      call('HSET', key(q, 'th:alias'), id, other)
      call('ZADD', key(q, 'th:aliases'), call('TIME')[1], id)
      if handing and handing[3] == id then send(handing[1], 'heir', handing[2], id, other, q) end
    elseif not known[id] then
      fresh[#fresh + 1] = job
      known[id] = q
    end
  end
  th.store(fresh, flows)
end
