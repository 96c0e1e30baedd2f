-- The earliest moment after `now` at which a scheduled job of these queues falls due or a lease of theirs ends.
-- Returns it in ms as text, or false: there is none.
-- needs: 10_keys
local queues = unpack(ARGS, 4)
local after, first = '(' .. n(th.now), nil
for _, q in ipairs(queues) do
  for _, name in ipairs({'delayed', 'active'}) do
    local found = try('ZRANGEBYSCORE', key(q, name), after, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    local at = found and finite(found[2])
    if at and (not first or at < first) then first = at end
  end
end
return first and n(math.ceil(first))
