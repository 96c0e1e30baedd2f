-- now, queue, seconds for which a missing dependency may still come, messages (kind, number, posted at, arguments) → for
-- each 1: applied, 0: not yet. On a Cluster; messages may come again.
local args = cmsgpack.unpack(ARGV[1])
th.begin(args[1], true, args[2])
local clock, answers = tonumber(call('TIME')[1]), {}
for index, message in ipairs(args[4]) do
  th.number = message[2]
  th.young = clock - message[3] < args[3]
  local answer = receive[message[1]](args[2], unpack(message[4]))
  answers[index] = answer == 'later' and 0 or 1
end
th.number, th.young = nil, nil
th.finish()
return answers
