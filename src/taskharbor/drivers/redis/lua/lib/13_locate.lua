-- Where an id is noted: see 12_locations.

local PARTS = 1021    -- hashes in each of the sixteen slots of a Cluster

local function note_key(id, at)
  if at then return at .. ':' .. note_number(id) % PARTS end
  return NOTES .. note_number(id) % HASHES
end

local function noted_queue(id, at)
  return try('HGET', note_key(id, at), id) or false
end
