-- queue, ids → for each whether the queue has its record.
local args = cmsgpack.unpack(ARGV[1])
local answers = {}
for index, id in ipairs(args[2]) do answers[index] = call('EXISTS', job_key(args[1], id)) end
return answers
