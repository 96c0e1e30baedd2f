-- OmniQ 4.0's index of plain jobs that move: see 15_omniq_stats.

-- For a driver that keeps no index: remove the ids that were moved from the index that others keep, so that nothing in it is wrong.
local function unindex(q, ids)
  local ats = {}
  for index, lane in ipairs(LANES) do ats[index] = key(q, 'idx:' .. lane) end
  if call('EXISTS', unpack(ats)) == 0 then return end
  for _, at in ipairs(ats) do index_ids('ZREM', at, ids) end
end

-- Ids moved from one lane of OmniQ's index to another (`scored`: with their scores, for ZADD), or left it.
local function index_plain(q, ids, from, to, scored)
  if not INDEXED then return unindex(q, ids) end
  if index_ids('ZREM', key(q, 'idx:' .. from), ids) < #ids then
    for _, lane in ipairs(LANES) do
      if lane ~= from and lane ~= to then index_ids('ZREM', key(q, 'idx:' .. lane), ids) end
    end
  end
  if to then index_ids('ZADD', key(q, 'idx:' .. to), scored) end
end
