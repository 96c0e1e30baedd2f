-- Acks of plain jobs.

-- Whether a token holds the lease whose state, token and end were read.
local function holds_lease(token, found)
  return found[1] == 'active' and found[2] == token and (tonumber(found[3]) or 0) > th.now
end

local function write_ack(at, token, result, now)
  local settled = 'a' .. token
  if result then
    call('HSET', at, 'state', 'completed', 'updated_ms', now, 'lease_token', '', 'lock_until_ms', '', 'th_st', settled,
         'th_res', result)
  else
    call('HSET', at, 'state', 'completed', 'updated_ms', now, 'lease_token', '', 'lock_until_ms', '', 'th_st', settled)
  end
end
