-- Returns the memos of a job: names and values by turns. A value begins with the moment in ms and the number of the delivery.
-- needs: 10_keys
local q, id = unpack(ARGS, 4)
return try('HGETALL', key(q, 'th:memo:' .. id)) or {}
