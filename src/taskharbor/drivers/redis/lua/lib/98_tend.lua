-- What others leave behind. An OmniQ client that finishes one of our jobs puts it into `completed` and tells nobody; a
-- hundred completions later it deletes the record. Workers look after that every few seconds.

-- A job of ours that a foreign client finished: it belongs to `th:done`, and its run and its dependents are told.
function th.adopt(q, id, job)
  call('LREM', sound(q, 'completed'), 1, id)
  if not job.th_fin then
    job.th_fin = call('HGET', job_key(q, id), 'updated_ms') or n(th.now)
    write(q, id, {'th_fin', job.th_fin, 'th_f', '1'})
  end
  call('ZADD', sound(q, 'th:done'), job.th_fin, id)
  th.book(q, id, false)
  th.close(q, id, job)
  if job.th_dep then th.release(q, id) end
end

function th.tend(q)
  for _, id in ipairs(call('LRANGE', sound(q, 'completed'), 0, -1)) do
    local found = call('HMGET', job_key(q, id), 'th_sto', 'state', 'th_dep')
    if found[1] and found[2] == 'completed' then
      th.adopt(q, id, th.load(q, id))
    elseif found[3] and found[2] == 'completed' then
      th.release(q, id)
    end
  end
  local watched = call('HRANDFIELD', sound(q, 'th:watched'), 1000, 'WITHVALUES')
  for index = 1, #watched, 2 do
    local id, flow = watched[index], watched[index + 1]
    local job = th.load(q, id)
    if not job then     -- trimmed, or removed: what is gone is not waited for
      th.release(q, id)
      if flow ~= '' then th.close(q, id, {th_flow = flow}) end
      th.forget(q, id, {state = 'gone', pri = 0, th_flow = flow ~= '' and flow or nil, th_sto = '0'})
    elseif job.state == 'completed' then
      if job.th_sto and not call('ZSCORE', sound(q, 'th:done'), id) then th.adopt(q, id, job) else th.release(q, id) end
    end
  end
  if not th.cluster and call('EXISTS', key(q, 'th:watched')) == 0 then call('SREM', WATCHED, q) end
end

-- On one server: a queue that holds nothing and is not paused is forgotten, so that names do not pile up. Limits of groups
-- stay. Its arrivals begin at 1 again.
function th.forget_queue(q)
  local keys = {}
  for index, name in ipairs({'wait', 'delayed', 'active', 'failed', 'completed', 'paused', 'groups:ready', 'th:ids', 'th:prio'}) do
    keys[index] = key(q, name)
  end
  if call('EXISTS', unpack(keys)) > 0 then return end
  call('ZREM', QUEUES, q)
  call('HDEL', TURNS, q)
  call('SREM', WATCHED, q)
  call('DEL', key(q, 'th:seq'), key(q, 'stats'), key(q, 'lane:rr'), key(q, 'th:sweep'), key(q, 'th:watched'))
  for _, lane in ipairs(LANES) do call('DEL', key(q, 'idx:' .. lane)) end
end
