-- OmniQ 4.0's index, where plain jobs move: see 15_omniq_stats.

-- For whoever keeps no index: what others keep loses the ids that were moved, so that nothing in it is wrong.
local function unindex(q, ids)
  local ats = {}
  for index, lane in ipairs(LANES) do ats[index] = key(q, 'idx:' .. lane) end
  if call('EXISTS', unpack(ats)) == 0 then return end
  for _, at in ipairs(ats) do note_ids('ZREM', at, ids) end
end

-- Ids went from one lane of the index to another (`scored`: with their scores, for ZADD), or out of it.
local function quick_index(q, ids, from, to, scored)
  if not INDEXED then return unindex(q, ids) end
  if note_ids('ZREM', key(q, 'idx:' .. from), ids) < #ids then
    for _, lane in ipairs(LANES) do
      if lane ~= from and lane ~= to then note_ids('ZREM', key(q, 'idx:' .. lane), ids) end
    end
  end
  if to then note_ids('ZADD', key(q, 'idx:' .. to), scored) end
end
