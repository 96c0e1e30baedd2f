-- The first limit of a group stays with its name.
-- in: queue, group, limit
INSERT INTO taskharbor_groups (queue, name, slots) VALUES (?, ?, ?)
ON CONFLICT (queue, name) DO UPDATE SET slots = excluded.slots WHERE slots IS NULL
