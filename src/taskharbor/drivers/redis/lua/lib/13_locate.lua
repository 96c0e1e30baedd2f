-- Reading the location of an id: see 12_locations.

local CLUSTER_HASHES = 1021    -- in each of the sixteen hash slots of a Cluster

local function location_key(id, at)
  if at then return at .. ':' .. location_hash(id) % CLUSTER_HASHES end
  return LOCATIONS .. location_hash(id) % HASHES
end

local function stored_queue(id, at)
  return try('HGET', location_key(id, at), id) or false
end
