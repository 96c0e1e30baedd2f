-- Returns for each id the queue that is stored for it, or false. On a Cluster; at: see cluster_registry.lua.
-- needs: 10_keys 12_locations 13_locate
local at, ids = unpack(ARGS, 4)
local results = {}
for index, id in ipairs(ids) do results[index] = stored_queue(id, at) end
return results
