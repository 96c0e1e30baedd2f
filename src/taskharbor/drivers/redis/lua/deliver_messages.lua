-- Deliver messages to the queue `home`, on a Cluster. A message may come twice.
-- patience_s: for how many seconds a missing dependency may still come; messages: {kind, number, posted at, `now` of the sender,
-- arguments}. Returns for each 1: applied, 0: not yet, 2: it can never be applied.
-- without: 90_reserve 95_fence 97_read 98_housekeeping 99_sweep
-- with: schedules_store cascade
local patience_s, messages = unpack(ARGS, 4)
even_if_full()
local AWAY = {'OOM', 'READONLY', 'NOREPLICAS', 'MISCONF', 'non local key'}
local clock, results = tonumber(call('TIME')[1]), {}
for index, message in ipairs(messages) do
  th.number, th.now = message[2], message[4]
  th.young = clock - message[3] < patience_s
  local fine, answer = pcall(function() return receive[message[1]](th.home, unpack(message[5])) end)
  if fine then
    results[index] = answer == 'later' and 0 or 1
  else
    local text = type(answer) == 'table' and answer.err or tostring(answer)
    for _, word in ipairs(AWAY) do
      if string.find(text, word, 1, true) then error(answer) end     -- not the message's fault: all come again
    end
    results[index] = 2
  end
end
th.number, th.young = nil, nil
th.finish()
return results
