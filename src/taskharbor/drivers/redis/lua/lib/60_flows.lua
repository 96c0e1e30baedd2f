-- Dependencies between jobs, and flows. What one job does to another is a message: applied at once where the other can be reached,
-- else posted to the outbox of the queue, in the same transaction, for any client to deliver. Every message may come twice: the
-- set of open dependencies and the flags of an edge make the second one harmless.
--
--   done(dependent, dependency)            one dependency less to wait for
--   flag(dependency, dependent, 0 or 1)    the dependent is finished, or unfinished again
--   unlink(dependency, dependent)          the dependent is forgotten
--   link(dependency, dependent, …)         the dependent waits for it; `done` comes back if there is nothing to wait for
--   repoint(dependent, old, new, its queue)  another job took the place of a dependency
--   lost(dependent, dependency)            it waits for a job that is gone
--   confirm(dependent, dependency, its queue)  `unlink` comes back if the dependent is finished or gone
--   store(jobs, …)                         jobs of a call or a spawn
--   fire(jobs, revision)                   jobs of a schedule (schedules_store.lua)
--   heir(job, old, new, its queue)         the job that was to take its place is known under another id

local receive = {}

-- The key of a flow, which belongs to no queue: of any other type it is begun anew, and sweeps restore it.
local function flow_key(flow)
  local at = '{th:flow:' .. flow .. '}'
  if not checked_keys[at] then
    checked_keys[at] = true
    if kind_of(at) ~= 'hash' then call('DEL', at) end
  end
  return at
end

local function lines(text)
  local found = {}
  for line in string.gmatch(text, '[^\n]+') do found[#found + 1] = line end
  return found
end

-- A message is a hint. What it says follows from the records, which are compared again (lib/healing.lua): so one that a failover
-- loses costs time. Messages are numbered; where one could overtake another, the later number wins. Those to `@ids` and `@flow` are for the client that
-- delivers: their keys are in other hash slots. An id or flow whose name is not text was not stored by this driver.
local function post(q, kind, args)
  if string.sub(q, 1, 1) == '@' and not is_text(args[1]) then return end
  local number = call('INCR', key(th.home, 'th:posted'))
  local clock = call('TIME')
  call('ZADD', key(th.home, 'th:outbox'), n(number), cmsgpack.pack({q, kind, number, tonumber(clock[1]), th.now, args}))
  return number
end

local function send(q, kind, ...)
  if th.cluster and q ~= th.home then
    post(q, kind, {...})
  else
    return receive[kind](q, ...)
  end
end
th.send = send

-- Fields of a record. One whose key holds something else is set aside first.
local function fields_of(q, id, ...)
  local found = try('HMGET', job_key(q, id), ...)
  if found then return found end
  th.set_aside(q, id, 'not a hash')
  return call('HMGET', job_key(q, id), ...)
end

-- A dependency in `th_deps`: its id and its queue.
local function edge(line)
  local id, q = string.match(line, '^([^\t]*)\t(.*)$')
  return id, q
end

local function dependencies(job)
  local found, seen = {}, {}
  for _, line in ipairs(job.th_deps and lines(job.th_deps) or {}) do
    if not seen[line] then
      seen[line] = true
      local id, q = edge(line)
      if id then found[#found + 1] = {id, q} end
    end
  end
  return found
end

-- Let a job wait for all of its dependencies again.
local function wait_for_all(q, id, job)
  local names = {}
  for index, found in ipairs(dependencies(job)) do names[index] = found[1] end
  many('SADD', safe_key(q, 'th:open:' .. id, 'set'), names)
end

local function after_key(q, id)
  return safe_key(q, 'th:after:' .. id, 'hash')
end

local function open_dependents(q, id)
  return tonumber(call('HGET', after_key(q, id), '') or 0) or 0
end
th.open_dependents = open_dependents

-- Put a finished job where prune will find it. One with a `keep_for` of its own is in `th:kept` by the end of that time, and never due in
-- its lane.
function th.shelve(q, id, lane, finished, keep)
  local till = th.kept_until(keep, finished)
  call('ZADD', safe_key(q, lane), till and '+inf' or n(finished), id)
  if till then call('ZADD', safe_key(q, 'th:kept'), n(till), id) end
end

-- Nothing keeps a finished job from being pruned any more: prune may check it again.
local function unpark(q, id)
  for _, lane in ipairs({'th:done', 'th:cancelled'}) do
    local score = call('ZSCORE', key(q, lane), id)
    if score == 'inf' then
      local found = fields_of(q, id, 'th_fin', 'updated_ms', 'th_keep')
      th.shelve(q, id, lane, whole(found[1] or found[2]), found[3] or nil)
    end
  end
end

local function set_edge(q, id, dependent, flag, sto, dq)
  local at = after_key(q, id)
  local known = call('HGET', at, dependent)
  local was = known and string.sub(known, 1, 1) or '0'
  if known and not sto then
    call('HSET', at, dependent, flag .. string.sub(known, 2))
  elseif sto then
    call('HSET', at, dependent, flag .. '|' .. sto .. '|' .. dq)
  else
    return
  end
  if was ~= flag then
    local left = call('HINCRBY', at, '', flag == '1' and 1 or -1)
    if left == 0 then unpark(q, id) end
  end
end

-- A blocked job, and when what it waits for was last compared, in seconds of the server.
local function block(q, id, at)
  call('ZADD', safe_key(q, 'th:blocked'), at or call('TIME')[1], id)
  if not th.cluster then shared('SADD', WATCHED, q) end
end

-- Another client may finish the job without telling its flow and its dependents: see 98_housekeeping.
local function watch(q, id, flow)
  call('HSET', safe_key(q, 'th:watched'), id, flow or '')
  if not th.cluster then shared('SADD', WATCHED, q) end
end

function receive.flag(q, id, dependent, flag)
  if th.number then     -- it came by message: an older one that was overtaken is ignored
    local at, last = after_key(q, id), '\n' .. dependent
    if (tonumber(call('HGET', at, last) or 0) or 0) >= th.number or call('HEXISTS', at, dependent) == 0 then return end
    call('HSET', at, last, n(th.number))
  end
  set_edge(q, id, dependent, flag)
end

function receive.confirm(q, id, dependency, its_q)
  local found = fields_of(q, id, 'state', 'payload')
  local state = found[1] or found[2] and ''
  if not state or state == 'completed' or state == 'cancelled' then send(its_q, 'unlink', dependency, id) end
end

function receive.unlink(q, id, dependent)
  local at = after_key(q, id)
  local known = call('HGET', at, dependent)
  if not known then return end
  call('HDEL', at, dependent, '\n' .. dependent)
  if string.sub(known, 1, 1) == '1' and call('HINCRBY', at, '', -1) == 0 then unpark(q, id) end
  if call('HLEN', at) <= 1 then call('DEL', at) end
end

-- A dependency without a record. If another job had its idempotency key, its id is an alias of that job.
local function link_missing(q, id, dependent, dq, mode)
  if not th.cluster then return false end
  local other = call('HGET', key(q, 'th:alias'), id)
  if other then
    post(dq, 'repoint', {dependent, id, other, q, 'there'})
    return 'moved'
  end
  if mode == 'done' or mode == 'free' then
    if dq ~= th.home then post(dq, 'done', {dependent, id}) end
    return false
  end
  if mode == 'there' then
    post(dq, 'lost', {dependent, id})
    return 'lost'
  end
  return (not th.number or th.young) and 'later' or true
end

-- Returns false if there is nothing to wait for. `flag` 0: the dependent is finished, the edge is only recorded.
-- `mode` says what the sender knows, on a Cluster:
--   done    it was done, and no other job has its place: if its record is gone now, that changes nothing
--   there   it existed: if its record is gone now, it was deleted
--   free    if its record is gone, it is not waited for
--   false   it may not be stored yet, because its message is under way (returns 'later': send the link again)
-- A job that was done and handed over stands for its heir (returns 'moved', and the dependent gets a message). The heir may be under
-- way as well: its message has the number `th_heirn`, and nothing can wait for it before it is stored.
function receive.link(q, id, dependent, sto, dq, flag, mode)
  local found = fields_of(q, id, 'state', 'payload', 'th_flow', 'th_f', 'th_sto', 'th_heir', 'th_heirq', 'th_heirn')
  if not found[1] and not found[2] then return link_missing(q, id, dependent, dq, mode) end
  if th.cluster and found[1] == 'completed' and found[6] and found[6] ~= '' and mode ~= 'done' and mode ~= 'free' then
    if found[8] and call('ZCOUNT', key(q, 'th:outbox'), found[8], found[8]) > 0 then return 'later' end
    post(dq, 'repoint', {dependent, id, found[6], found[7] or q, 'free'})
    return 'moved'
  end
  set_edge(q, id, dependent, flag or '1', sto, dq)
  call('HSET', job_key(q, id), 'th_dep', '1', 'th_f', found[5] and found[4] ~= '1' and 'm' or '1')
  if found[1] == 'completed' then
    if th.cluster and dq ~= th.home then post(dq, 'done', {dependent, id}) end
    return false
  end
  if found[1] == 'cancelled' and found[3] and receive.stopped then
    send(dq, 'stopped', dependent, id, found[3], th.cluster and dq ~= th.home and mode ~= 'free' and 'stop' or 'note')
  end
  watch(q, id, found[3])
  return true
end

function receive.done(q, id, dependency)
  local open = safe_key(q, 'th:open:' .. id, 'set')
  if call('SREM', open, dependency) == 1 and call('SCARD', open) == 0 then
    local job = th.load(q, id)
    if job and job.state == 'blocked' then
      th.remove(q, id, job)
      th.place(q, id, job, tonumber(job.due_ms), {})
    end
  end
end

-- It is unknown whether the dependency ran: the dependent is set aside, and runs without it if it is requeued.
function receive.lost(q, id, dependency)
  if call('SISMEMBER', safe_key(q, 'th:open:' .. id, 'set'), dependency) == 0 then return end
  local job = th.load(q, id)
  if job and job.state == 'blocked' then
    th.dead(q, id, job, {'th_reason', 'depends on ' .. dependency .. ', which was deleted'})
  end
end

function receive.heir(q, id, old, new, new_q)
  if call('HGET', job_key(q, id), 'th_heir') == old then write(q, id, {'th_heir', new, 'th_heirq', new_q}) end
end

function receive.repoint(q, id, old, new, new_q, mode)
  local job = th.load(q, id)
  if not job or not job.th_deps then return end
  local deps, hit = {}, false
  for _, line in ipairs(lines(job.th_deps)) do
    if edge(line) == old then line = new .. '\t' .. new_q; hit = true end
    deps[#deps + 1] = line
  end
  if not hit then return end
  write(q, id, {'th_deps', table.concat(deps, '\n')})
  local open = safe_key(q, 'th:open:' .. id, 'set')
  local waits = job.state == 'blocked' and call('SISMEMBER', open, old) == 1
  if waits then call('SADD', open, new) end
  local flag = (job.state == 'completed' or job.state == 'cancelled') and '0' or '1'
  local to_wait = send(new_q, 'link', new, id, job.th_sto, q, flag, mode or false)
  if to_wait == 'later' then post(new_q, 'link', {new, id, job.th_sto, q, flag, mode or false}) end
  if waits then
    if to_wait == false then receive.done(q, id, new) end
    receive.done(q, id, old)
    if th.is_stranded and th.is_stranded(q, id, new) then th.strand(q, id, job) end
  end
end

-- The dependents of a job, in the order in which they were stored.
function th.dependents(q, id)
  local found, all = {}, call('HGETALL', after_key(q, id))
  for index = 1, #all, 2 do
    if all[index] ~= '' and string.sub(all[index], 1, 1) ~= '\n' then
      local _, sto, dq = string.match(all[index + 1], '^(%d)|(%-?%d+)|(.*)$')
      if dq then found[#found + 1] = {all[index], tonumber(sto), dq} end
    end
  end
  table.sort(found, function(a, b) return a[2] < b[2] end)
  return found
end

function th.release(q, id)
  for _, dependent in ipairs(th.dependents(q, id)) do send(dependent[3], 'done', dependent[1], id) end
  call('HDEL', safe_key(q, 'th:watched'), id)
end

-- `new` takes the place of the job in the depends_on of these dependents.
function th.hand_over(q, id, waiting, new, new_q)
  for _, dependent in ipairs(waiting) do
    receive.unlink(q, id, dependent[1])
    send(dependent[3], 'repoint', dependent[1], id, new, new_q)
  end
  call('HDEL', safe_key(q, 'th:watched'), id)
end

-- Make an unfinished job known to its dependencies; returns how many of them are open. `modes`: what is known of each, by id, see
-- receive.link; `free` for all: a missing one is not waited for.
function th.link(q, id, job, modes)
  local open = {}
  for _, found in ipairs(dependencies(job)) do
    local mode = modes == 'free' and 'free' or modes and modes[found[1]] or false
    local answer = send(found[2], 'link', found[1], id, job.th_sto, q, '1', mode)
    if answer == 'later' then post(found[2], 'link', {found[1], id, job.th_sto, q, '1', mode}) end
    if answer ~= false and not (answer == nil and mode == 'done') then open[#open + 1] = found[1] end
  end
  local at = safe_key(q, 'th:open:' .. id, 'set')
  call('DEL', at)
  many('SADD', at, open)
  return #open
end

-- Flows

local function open_key(q, flow)
  return safe_key(q, 'th:flow+:' .. flow, 'set')
end

local function flow_queues(flow)
  local found = {}
  for _, field in ipairs(call('HKEYS', flow_key(flow))) do
    if string.sub(field, 1, 1) == '=' then found[#found + 1] = string.sub(field, 2) end
  end
  return found
end

local function flow_is_open(flow)
  for _, q in ipairs(flow_queues(flow)) do
    if call('EXISTS', open_key(q, flow)) == 1 then return true end
  end
  return false
end

-- What `flows` reads: the flows that have jobs in a queue (`th:flows`), and for each its jobs there, scored by how they are. A job that
-- another client ended is corrected by housekeeping, one that is missing is added by a sweep.
th.UNFINISHED = '0'
th.DONE = '1'
th.CANCELLED = '2'
th.DEAD = '3'

local STEPS = {completed = th.DONE, cancelled = th.CANCELLED, wait = th.UNFINISHED, active = th.UNFINISHED,
               delayed = th.UNFINISHED, blocked = th.UNFINISHED}      -- a record of any other state is dead

function th.set_step(q, id, flow, how)
  index_ids('ZADD', key(q, 'th:steps:' .. flow), {how, id})
end

function th.list_flow(q, flow)
  call('ZADD', safe_key(q, 'th:flows'), '0', flow)
end

function th.enter_flow(q, id, flow)
  local members = safe_key(q, 'th:flow:' .. flow, 'set')
  -- A message may come long after the call that entered this queue for the flow: see cluster_registry.py.
  if th.number and call('EXISTS', members) == 0 then post('@flow', 'entered', {flow, q}) end
  call('SADD', members, id)
  call('SADD', open_key(q, flow), id)
  watch(q, id, flow)
  th.set_step(q, id, flow, th.UNFINISHED)
  if th.cluster or call('HSET', flow_key(flow), '=' .. q, '1') == 1 then th.list_flow(q, flow) end
end

-- Whether a job that enters a flow is cancelled at once. On a Cluster `flows` holds what the client learned when it entered the flow: its
-- generation and whether it was cancelled; a queue's own flag counts for that generation only.
function th.flow_cancelled(q, flow, flows)
  if not th.cluster then return call('HEXISTS', flow_key(flow), '!') == 1 end
  local entered = flows and flows[flow] or {}
  return entered[2] or call('GET', key(q, 'th:flow!:' .. flow)) == (entered[1] or '')
end

-- A job is no longer unfinished. With the last one of a flow, what a prune met of the flow may go.
local function end_in_flow(q, id, flow)
  local open = open_key(q, flow)
  if call('SREM', open, id) == 0 or th.cluster or call('EXISTS', open) == 1 or flow_is_open(flow) then return end
  for _, fq in ipairs(flow_queues(flow)) do
    local parked = safe_key(fq, 'th:parked:' .. flow, 'set')
    for _, other in ipairs(call('SMEMBERS', parked)) do unpark(fq, other) end
    call('DEL', parked)
  end
end

-- Neither its flow nor its dependencies wait for it any more. `how`: th.DONE or th.CANCELLED.
function th.close(q, id, job, how)
  if job.th_flow or job.th_dep then call('HDEL', safe_key(q, 'th:watched'), id) end
  if job.th_flow then
    end_in_flow(q, id, job.th_flow)
    th.set_step(q, id, job.th_flow, how)
  end
  for _, found in ipairs(dependencies(job)) do send(found[2], 'flag', found[1], id, '0') end
end

-- A finished job is to run again.
function th.reopen(q, id, job)
  if job.th_flow then call('SADD', open_key(q, job.th_flow), id) end
  for _, found in ipairs(dependencies(job)) do send(found[2], 'flag', found[1], id, '1') end
end

function th.leave_flow(q, id, flow)
  end_in_flow(q, id, flow)
  call('SREM', safe_key(q, 'th:parked:' .. flow, 'set'), id)
  index_ids('ZREM', key(q, 'th:steps:' .. flow), {id})
  local members = safe_key(q, 'th:flow:' .. flow, 'set')
  call('SREM', members, id)
  if call('EXISTS', members) == 1 then return end
  call('DEL', key(q, 'th:steps:' .. flow))
  call('ZREM', safe_key(q, 'th:flows'), flow)
  if th.cluster then
    call('DEL', key(q, 'th:flow!:' .. flow))
    post('@flow', 'left', {flow, q})
  else
    local at = flow_key(flow)
    call('HDEL', at, '=' .. q)
    if #flow_queues(flow) == 0 then call('DEL', at) end
  end
end
