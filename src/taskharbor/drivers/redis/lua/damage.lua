-- What other programs damaged in these queues.
-- Returns for each damaged queue its name, how many keys were moved to `th:damaged`, name and type of some of them by turns, how many
-- jobs were restored and how many set aside in the last day, and how many messages cannot be delivered.
-- without: 80_store 90_reserve 95_fence 97_read 98_housekeeping 99_sweep
local queues = unpack(ARGS, 4)
local results, clock = {}, tonumber(call('TIME')[1])

local function look(q)
  local kept, number = {}, 0
  local page = try('HSCAN', key(q, 'th:damaged'), '0', 'COUNT', 1000) or {'0', {}}
  for index = 1, #page[2], 2 do
    local name = page[2][index]
    if call('EXISTS', key(q, 'th:damaged:' .. name)) == 1 then     -- else a person has deleted it since
      number = number + 1
      if number <= 3 then add(kept, name, page[2][index + 1]) end
    end
  end
  local restored, aside = th.repairs(q, clock)
  local returned = try('ZCARD', key(q, 'th:returned')) or 0
  if number + restored + aside + returned > 0 then results[#results + 1] = {q, number, kept, restored, aside, returned} end
end

for _, q in ipairs(queues) do
  if call('EXISTS', key(q, 'th:damaged'), key(q, 'th:mended'), key(q, 'th:returned')) > 0 then look(q) end
end
return results
