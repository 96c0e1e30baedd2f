-- queue, seconds for which a missing dependency may still come, messages (kind, number, posted at, the `now` of what posted
-- it, arguments) → for each 1: applied, 0: not yet, 2: it cannot be, because of what it says or what it meets. On a Cluster;
-- messages may come again.
-- without: 90_reserve 95_fence 97_read 98_housekeeping 99_sweep
local args = cmsgpack.unpack(ARGV[1])
even_if_full()
th.begin(0, true, args[1])
local AWAY = {'OOM', 'READONLY', 'NOREPLICAS', 'MISCONF', 'non local key'}
local clock, answers = tonumber(call('TIME')[1]), {}
for index, message in ipairs(args[3]) do
  th.number, th.now = message[2], message[4]
  th.young = clock - message[3] < args[2]
  local fine, answer = pcall(function() return receive[message[1]](args[1], unpack(message[5])) end)
  if fine then
    answers[index] = answer == 'later' and 0 or 1
  else
    local text = type(answer) == 'table' and answer.err or tostring(answer)
    for _, word in ipairs(AWAY) do
      if string.find(text, word, 1, true) then error(answer) end     -- not the message's fault: all come again
    end
    answers[index] = 2
  end
end
th.number, th.young = nil, nil
th.finish()
return answers
