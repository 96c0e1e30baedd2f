-- Returns for each id the queue that is stored for it, or false. On a Cluster; at: see cluster_registry.lua.
-- needs: 10_keys 12_locations 13_locate
local now, cluster, home, at, ids = unpack(cmsgpack.unpack(ARGV[1]))
local answers = {}
for index, id in ipairs(ids) do answers[index] = noted_queue(id, at) end
return answers
