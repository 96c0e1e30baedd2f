-- What other clients leave behind. An OmniQ client that finishes one of our jobs puts it into `completed` and tells neither its flow
-- nor its dependents; a hundred completions later it deletes the record. Workers look after that every few seconds.

local ALIASES_FOR = 86400     -- seconds; as long as outbox.py lets a message wait

-- A job of ours that a foreign client finished: it moves to `th:done`, and its flow and its dependents learn of it.
function th.adopt(q, id, job)
  call('LREM', safe_key(q, 'completed'), 1, id)
  if not job.th_fin then
    job.th_fin = call('HGET', job_key(q, id), 'updated_ms') or n(th.now)
    write(q, id, {'th_fin', job.th_fin, 'th_f', '1'})
  end
  th.shelve(q, id, 'th:done', whole(job.th_fin), job.th_keep)
  th.index(q, id, false)
  th.close(q, id, job, th.DONE)
  if job.th_dep then th.release(q, id) end
end

-- A watched id, which another client may have finished.
local function check_watched(q, id, flow)
  local found = fields_of(q, id, 'state', 'th_sto', 'payload')
  if not found[1] and not found[2] and not found[3] then     -- trimmed or removed: a job that is gone is not waited for
    th.release(q, id)
    if flow ~= '' then th.close(q, id, {th_flow = flow}, th.DONE) end
    th.forget(q, id, {state = 'gone', pri = 0, th_flow = flow ~= '' and flow or nil, th_sto = '0'})
  elseif found[1] == 'completed' then
    if found[2] and not call('ZSCORE', key(q, 'th:done'), id) then
      th.adopt(q, id, th.load(q, id))
    else
      th.release(q, id)
    end
  elseif flow ~= '' then     -- a foreign client may have ended it, or brought it back
    th.set_step(q, id, flow, (KNOWN[found[1] or ''] and found[1] ~= 'failed') and th.UNFINISHED or th.DEAD)
  end
end

-- Check `completed`. Returns whether others may have trimmed a job of ours since the last check. Everything was checked then, so that
-- takes a hundred completions, and the entry that came first then is gone.
local function check_completed(q)
  local at, notes = safe_key(q, 'completed'), key(q, 'th:tend')
  local ids, first = call('LRANGE', at, 0, 2 * KEPT), call('HGET', notes, 'first')
  local overflown = #ids >= KEPT and not (first and call('LPOS', at, first))
  for _, id in ipairs(ids) do
    local found = fields_of(q, id, 'th_sto', 'state', 'th_dep')
    if found[1] and found[2] == 'completed' then
      th.adopt(q, id, th.load(q, id))
    elseif found[3] and found[2] == 'completed' then
      th.release(q, id)
    end
  end
  local now_first = call('LINDEX', at, 0)
  if now_first then call('HSET', notes, 'first', now_first) elseif first then call('HDEL', notes, 'first') end
  return overflown
end

-- Look after a queue: check `completed`, and about `count` of the watched jobs, all in turn. Returns whether all of them should be
-- checked now.
function th.housekeep(q, count)
  local notes, watched = key(q, 'th:tend'), safe_key(q, 'th:watched')
  if check_completed(q) then call('HSET', notes, 'hurry', '2') end     -- the round that has begun, and a whole one
  local page = call('HSCAN', watched, call('HGET', notes, 'at') or '0', 'COUNT', count)
  for index = 1, #page[2], 2 do check_watched(q, page[2][index], page[2][index + 1]) end
  local hurry = whole(call('HGET', notes, 'hurry') or '0')
  if page[1] == '0' then
    call('HDEL', notes, 'at')
    if hurry > 1 then call('HSET', notes, 'hurry', n(hurry - 1)) elseif hurry == 1 then call('HDEL', notes, 'hurry') end
    hurry = hurry - 1
  else
    call('HSET', notes, 'at', page[1])
  end
  if th.cluster then
    local old = call('ZRANGEBYSCORE', key(q, 'th:aliases'), '-inf', n(call('TIME')[1] - ALIASES_FOR), 'LIMIT', 0, 100)
    if #old > 0 then
      call('HDEL', key(q, 'th:alias'), unpack(old))
      call('ZREM', key(q, 'th:aliases'), unpack(old))
    end
  elseif call('EXISTS', watched, key(q, 'th:blocked')) == 0 then
    shared('SREM', WATCHED, q)
  end
  return hurry > 0
end

-- Forget a queue that holds nothing and is not paused, so that names do not pile up. Limits of groups stay. Its arrivals begin at 1
-- again. Returns whether it was forgotten. On a Cluster nothing is written to other hash slots.
local HOLDS = {'wait', 'delayed', 'active', 'failed', 'completed', 'paused', 'groups:ready', 'th:ids', 'th:prio', 'th:done',
               'th:cancelled', 'th:blocked', 'th:outbox', 'th:returned', 'th:alias', 'th:unnoted', 'th:damaged'}
local LEFT = {'th:seq', 'th:count', 'stats', 'lane:rr', 'th:sweep', 'th:watched', 'th:held', 'th:mended', 'th:tend', 'th:posted',
              'th:kept', 'th:flows', 'th:sliced', 'th:followed'}
function th.forget_queue(q)
  local keys = {}
  for index, name in ipairs(HOLDS) do keys[index] = key(q, name) end
  if call('EXISTS', unpack(keys)) > 0 then return false end
  if not th.cluster then
    shared('ZREM', QUEUES, q)
    shared('HDEL', TURNS, q)
    shared('SREM', WATCHED, q)
  end
  for _, name in ipairs(LEFT) do call('DEL', key(q, name)) end
  for _, lane in ipairs(LANES) do call('DEL', key(q, 'idx:' .. lane)) end
  return true
end
