-- A member of a group is inflight now, and the group's turn is over.
-- in: queue, group
UPDATE taskharbor_groups SET inflight = inflight + 1, turn = NULL WHERE queue = ? AND name = ?
