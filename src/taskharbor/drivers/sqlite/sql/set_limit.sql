-- The first limit of a group stays with its name.
-- in: queue, group, limit
INSERT INTO taskharbor_groups (queue, name, group_limit) VALUES (?, ?, ?)
ON CONFLICT (queue, name) DO UPDATE SET group_limit = excluded.group_limit WHERE group_limit IS NULL
