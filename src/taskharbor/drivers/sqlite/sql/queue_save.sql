-- Make or write back the row of a queue.
-- in: name, paused, at, arrived, served, groups_next
INSERT INTO taskharbor_queues (name, paused, at, arrived, served, groups_next) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET
    paused = excluded.paused, at = excluded.at, arrived = excluded.arrived, served = excluded.served,
    groups_next = excluded.groups_next
