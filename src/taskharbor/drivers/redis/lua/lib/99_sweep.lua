-- Records that are in no list or set, because a key was deleted or written over, or a client stopped half-way. Nothing else would ever
-- find them again. A sweep walks all ids in turn and puts such records back.

local NEAR = 250       -- entries of a list to either side of a job's place
local seen_in_list = {}      -- list → id → true, as far as this script has read
th.searches = 0

-- Since when a record is where it is.
function th.since(q, id)
  return whole(try('HGET', job_key(q, id), 'updated_ms'))
end

-- Whether an id is in a list, searched for where its time says: a job enters a list at one end, with its time. nil: not there, and the
-- list is too long to be sure.
local function is_in_list(q, list, id, time, newest_first)
  local known = seen_in_list[list]
  if not known then known = {}; seen_in_list[list] = known end
  if known[id] then return true end
  local size = call('LLEN', list)
  if size <= 2 * NEAR then
    for _, each in ipairs(call('LRANGE', list, 0, -1)) do known[each] = true end
    return known[id] or false
  end
  local function is_before(other)
    local its = th.since(q, other)
    if newest_first then return its > time end
    return its < time
  end
  th.searches = th.searches + 1
  local low, high = 0, size
  while low < high do
    local middle = floor((low + high) / 2)
    if is_before(call('LINDEX', list, middle)) then low = middle + 1 else high = middle end
  end
  local from = max(0, low - NEAR)
  for _ = 1, 10 do      -- thousands may have come in the same millisecond
    local entries = call('LRANGE', list, from, from + 2 * NEAR)
    for _, each in ipairs(entries) do known[each] = true end
    if known[id] then return true end
    from = from + 2 * NEAR
    if from >= size or th.since(q, entries[#entries]) ~= time then return nil end
  end
  return nil
end

local function is_ready(q, id, job, time)
  if job.pri ~= 0 and not job.gid
     and call('ZSCORE', safe_key(q, 'th:prio'), prio_member(id, whole(job.th_at), whole(job.th_seq))) then
    return true
  end
  local list = job.gid and group_list(q, job.gid) or safe_key(q, 'wait')
  return is_in_list(q, list, id, time), list
end

local IS_PLACED = {
  wait = is_ready,
  failed = function(q, id, job, time) return is_in_list(q, safe_key(q, 'failed'), id, time, true), safe_key(q, 'failed') end,
  active = function(q, id) return call('ZSCORE', safe_key(q, 'active'), id) ~= false end,
  delayed = function(q, id) return call('ZSCORE', safe_key(q, 'delayed'), id) ~= false end,
  cancelled = function(q, id) return call('ZSCORE', safe_key(q, 'th:cancelled'), id) ~= false end,
  completed = function(q, id)
    if call('ZSCORE', safe_key(q, 'th:done'), id) then return true end
    for _, each in ipairs(call('LRANGE', safe_key(q, 'completed'), 0, KEPT)) do
      if each == id then return true end
    end
    return false
  end,
  blocked = function(q, id)
    return call('ZSCORE', safe_key(q, 'th:blocked'), id) and call('EXISTS', key(q, 'th:open:' .. id)) == 1
  end,
}

-- false: the record is where its state says; true: it is nowhere; a list: it is not near its place there. A record of an unknown state
-- is in the dead letter queue, or where a reserve sets it aside.
function th.absent(q, id, job)
  local time = th.since(q, id)
  local stands = IS_PLACED[job.state or '']
  local found, list
  if stands then
    found, list = stands(q, id, job, time)
  else
    found, list = is_in_list(q, safe_key(q, 'failed'), id, time, true), safe_key(q, 'failed')
    for _, other in ipairs({'wait', 'active', 'delayed'}) do
      if not found then
        local there, its_list = IS_PLACED[other](q, id, job, time)
        if there then return false end
        if there == nil then found, list = nil, its_list end
      end
    end
  end
  if found then return false end
  if found == nil then return list end
  return true
end

-- Let the keys of a flow have a job again. Returns whether the flow has to learn of this queue, on a Cluster.
function th.restore_in_flow(q, id, job)
  local flow, how = job.th_flow, STEPS[job.state or ''] or th.DEAD
  local members = safe_key(q, 'th:flow:' .. flow, 'set')
  call('SADD', members, id)
  if how == th.UNFINISHED or how == th.DEAD then
    call('SADD', safe_key(q, 'th:flow+:' .. flow, 'set'), id)
    watch(q, id, flow)
  else
    end_in_flow(q, id, flow)
  end
  th.set_step(q, id, flow, how)
  th.list_flow(q, flow)
  if not th.cluster then call('HSET', flow_key(flow), '=' .. q, '1') end
end

-- Let go of a finished job that nothing needs. What its dependents said of their end may be lost: some of them are asked again.
local ASKED = 100
function th.check_need(q, id, job)
  local at = safe_key(q, 'th:after:' .. id, 'hash')
  if job.th_dep and call('EXISTS', at) == 1 then
    local asked, unfinished = call('HRANDFIELD', at, ASKED, 'WITHVALUES'), 0
    for index = 1, #asked, 2 do
      local flag, _, dq = string.match(asked[index + 1], '^(%d)|(%-?%d+)|(.*)$')
      if flag == '1' then
        unfinished = unfinished + 1
        send(dq, 'confirm', asked[index], id, q)
      end
    end
    if #asked < 2 * ASKED and unfinished ~= open_dependents(q, id) then call('HINCRBY', at, '', unfinished - open_dependents(q, id)) end
  end
  local lane = job.state == 'completed' and 'th:done' or 'th:cancelled'
  if call('ZSCORE', safe_key(q, lane), id) ~= 'inf' or call('ZSCORE', safe_key(q, 'th:kept'), id) or open_dependents(q, id) > 0 then
    return
  end
  for _, fq in ipairs(job.th_flow and not th.cluster and flow_queues(job.th_flow) or {}) do
    for _, other in ipairs(call('SRANDMEMBER', safe_key(fq, 'th:flow+:' .. job.th_flow, 'set'), ASKED)) do
      if call('EXISTS', job_key(fq, other)) == 1 then return end
      end_in_flow(fq, other, job.th_flow)
    end
  end
  unpark(q, id)
end

-- Put back a record that is not where its state says. If another program changed that state, its id is still in the set of the one
-- before; there it would be counted once more.
function th.restore(q, id, job)
  local state = job.state or ''
  for _, name in ipairs({'th:done', 'th:cancelled', 'th:kept'}) do call('ZREM', safe_key(q, name), id) end
  call('LREM', safe_key(q, 'completed'), 1, id)
  if state ~= 'blocked' then call('ZREM', safe_key(q, 'th:blocked'), id) end
  if state == 'wait' then
    local seq = th.next_arrival(q)
    write(q, id, {'th_at', n(th.now), 'th_seq', n(seq), 'updated_ms', n(th.now), 'th_f', '1'})
    th.push_ready(q, id, job.gid, job.pri, th.now, seq)
    th.hint(q)
  elseif state == 'delayed' then
    local due = whole(job.due_ms)
    write(q, id, {'due_ms', n(due)})
    call('ZADD', safe_key(q, 'delayed'), n(due), id)
    th.index(q, id, 'delayed')
    th.hint(q)
  elseif state == 'active' then     -- when its lease is over, it becomes ready again like any other, and frees its group place
    call('ZADD', safe_key(q, 'active'), n(whole(job.lock_until_ms)), id)
    th.index(q, id, 'active')
    th.hint(q)
  elseif state == 'completed' then
    th.adopt(q, id, job)
  elseif state == 'cancelled' then
    th.shelve(q, id, 'th:cancelled', whole(job.th_fin or th.since(q, id)), job.th_keep)
    th.close(q, id, job, th.CANCELLED)
    th.index(q, id, false)
  elseif state == 'blocked' then
    wait_for_all(q, id, job)
    block(q, id, '0')
  elseif state == 'failed' then
    call('RPUSH', safe_key(q, 'failed'), id)
    th.index(q, id, 'failed')
  else
    th.set_aside(q, id, 'unknown state')
  end
end
