-- Count slots of a group that were taken or freed; makes the group's row if it has none.
-- in: queue, group, how many more are inflight
INSERT INTO taskharbor_groups (queue, name, inflight) VALUES (?, ?, ?)
ON CONFLICT (queue, name) DO UPDATE SET inflight = inflight + excluded.inflight
