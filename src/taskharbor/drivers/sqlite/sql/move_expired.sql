-- Leases of a queue that are over: their jobs join the line at the moment they ended, with their old arrival.
-- in: queue, the moment it stood at, the moment it moves to          out: the group of each
UPDATE taskharbor_jobs SET lined = 1, time = moment
WHERE queue = ? AND state = 2 AND moment > ? AND moment <= ?
RETURNING grp
