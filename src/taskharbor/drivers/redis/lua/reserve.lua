-- now, cluster, home, queues, lease in ms, limit, worker, tokens, again → for each queue its name, the number of its last
-- arrival if nothing is left there (else false), and the jobs (see th.grant). `again`: false, or the `now` of the same call
-- whose reply was lost; what it granted, known by its tokens, is leased from now on and answered.
-- without: 80_store 95_fence 97_find 98_tend
local args = cmsgpack.unpack(ARGV[1])
even_if_full()
th.begin(args[1], args[2], args[3])
local queues, limit, tokens = args[4], args[6], args[8]

if args[9] then
  local answer, any = {}, false
  for _, q in ipairs(queues) do
    local granted = th.granted(q, args[9], args[5], tokens)
    any = any or #granted > 0
    answer[#answer + 1] = {q, false, granted}
  end
  if any then return answer end
end

local open = {}
for _, q in ipairs(queues) do
  if call('EXISTS', key(q, 'paused')) == 0 then
    th.promote(q)
    th.expire(q)
    open[#open + 1] = q
  end
end
if #open > 1 and not th.cluster then   -- the queue first that was served longest ago, for the whole store
  local served = call('HMGET', TURNS, unpack(open))
  local place = {}
  for index, q in ipairs(open) do place[q] = {tonumber(served[index] or 0) or 0, index} end
  table.sort(open, function(a, b)
    if place[a][1] ~= place[b][1] then return place[a][1] < place[b][1] end
    return place[a][2] < place[b][2]
  end)
end

local found, left, turns = {}, limit, {}
for _, q in ipairs(open) do turns[#turns + 1] = q; found[q] = {} end
while left > 0 and #turns > 0 do
  local further = {}
  for index, q in ipairs(turns) do
    if left <= 0 then break end
    local share = math.ceil(left / (#turns - index + 1))
    local taken = th.take(q, share)
    for _, one in ipairs(taken) do table.insert(found[q], one) end
    left = left - #taken
    if #taken == share then further[#further + 1] = q end
    if #taken > 0 and #open > 1 and not th.cluster then
      call('HSET', TURNS, q, call('HINCRBY', TURNS, '', 1))
    end
  end
  turns = further
end

local answer, used = {}, 0
for _, q in ipairs(queues) do
  local taken = found[q] or {}
  local own = {}
  for index = 1, #taken do own[index] = tokens[used + index] end
  used = used + #taken
  local granted = th.grant(q, taken, args[5], args[7], own)
  if #granted > 0 and not th.cluster then call('ZADD', QUEUES, 'NX', n(th.now), q) end
  answer[#answer + 1] = {q, false, granted}
end
th.finish()
if left > 0 then
  for _, each in ipairs(answer) do each[2] = call('GET', key(each[1], 'th:seq')) or '0' end
end
return answer
