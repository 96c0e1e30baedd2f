-- The jobs of a schedule come to their queue. On a Cluster they come by a message, which may come twice, even after they ran and were
-- deleted. So the queue remembers each message for an hour, by the revision of the row that it came with.
local REMEMBERED_MS = '3600000'

function receive.fire(q, jobs, revision)
  local brought = th.number and key(q, 'th:fired:' .. revision)
  if brought and call('EXISTS', brought) == 1 then return end
  receive.store(q, jobs)
  if brought then call('SET', brought, '1', 'PX', REMEMBERED_MS) end
end
