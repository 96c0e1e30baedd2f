-- Lease jobs from queues, whatever they hold.
-- repeats: false, or the `now` of the same call whose reply was lost: what it granted, known by its tokens, is leased anew from now.
-- Returns for each queue {name, the number of its last arrival if it has nothing left (-1: it may have; false: the limit was
-- reached), the jobs (see th.grant)}.
-- without: 80_store 95_fence 97_read 98_housekeeping 99_sweep
local queues, lease_ms, limit, worker, tokens, repeats = unpack(ARGS, 4)
even_if_full()

if repeats then
  local result, any = {}, false
  for _, q in ipairs(queues) do
    local granted = th.regrant(q, repeats, lease_ms, tokens)
    any = any or #granted > 0
    result[#result + 1] = {q, false, granted}
  end
  if any then return result end
end

-- The queues that may have work, checked a few at a time: most of many queues are empty.
local JOB_KEYS = {'wait', 'th:prio', 'groups:ready', 'delayed', 'active'}
local function has_work(first, last)
  local keys = {}
  for index = first, last do
    for _, name in ipairs(JOB_KEYS) do keys[#keys + 1] = key(queues[index], name) end
  end
  return call('EXISTS', unpack(keys)) > 0
end
local open = {}
for first = 1, #queues, 16 do
  local last = min(first + 15, #queues)
  if first == last or has_work(first, last) then
    for index = first, last do
      if has_work(index, index) and call('EXISTS', key(queues[index], 'paused')) == 0 then open[#open + 1] = queues[index] end
    end
  end
end
if #open > 1 and not th.cluster then   -- first the queue that was served longest ago, in the whole store
  local served, place = shared('HMGET', TURNS, unpack(open)), {}
  for index, q in ipairs(open) do place[q] = {finite(served[index]) or 0, index} end
  table.sort(open, function(a, b)
    if place[a][1] ~= place[b][1] then return place[a][1] < place[b][1] end
    return place[a][2] < place[b][2]
  end)
end

-- turns: the queues of this round; more: queue → true: it may have more than this call moved or judged
local found, left, turns, more = {}, limit, open, {}
while left > 0 and #turns > 0 do
  local further = {}
  for index, q in ipairs(turns) do
    if left <= 0 then break end
    local share = math.ceil(left / (#turns - index + 1))
    if th.move_due(q) then more[q] = true end
    local taken, unseen = th.take(q, share)
    if unseen then more[q] = true end
    local mine = found[q]
    if not mine then mine = {}; found[q] = mine end
    for _, one in ipairs(taken) do mine[#mine + 1] = one end
    left = left - #taken
    if #taken == share then further[#further + 1] = q end
    if #taken > 0 and #open > 1 and not th.cluster then
      shared('HSET', TURNS, q, shared('HINCRBY', TURNS, '', 1))
    end
  end
  turns = further
end

local result, used, arrivals = {}, 0, {}     -- arrivals: for each queue the key of its last arrival's number
for index, q in ipairs(queues) do
  local taken, own = found[q] or {}, {}
  for place = 1, #taken do own[place] = tokens[used + place] end
  used = used + #taken
  if #taken > 0 then
    taken = th.grant(q, taken, lease_ms, worker, own)
    if not th.cluster then shared('ZADD', QUEUES, 'NX', n(th.now), q) end
  end
  result[index], arrivals[index] = {q, false, taken}, key(q, 'th:seq')
end
th.finish()
if left > 0 then
  for first = 1, #arrivals, 4000 do
    for index, seq in ipairs(call('MGET', unpack(arrivals, first, min(first + 3999, #arrivals)))) do
      local each = result[first + index - 1]
      each[2] = more[each[1]] and '-1' or n(finite(seq) or 0)
    end
  end
end
return result
