-- The clock went back: a lease that holds again is held.
-- in: queue, the moment it moves to, the moment it stood at          out: the group of each
UPDATE taskharbor_jobs SET lined = 0
WHERE queue = ? AND state = 2 AND moment > ? AND moment <= ?
RETURNING grp
