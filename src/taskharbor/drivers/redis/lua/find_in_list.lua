-- Which ids are in a slice of a list: `count` entries, after `skip` entries from the end.
-- Returns those of the ids, and how long the list is.
-- needs: 10_keys
local list, ids, skip, count = unpack(ARGS, 4)
local sought, found = {}, {}
for _, id in ipairs(ids) do sought[id] = true end
for _, id in ipairs(call('LRANGE', list, n(-skip - count), n(-skip - 1))) do
  if sought[id] then found[#found + 1] = id end
end
return {found, call('LLEN', list)}
