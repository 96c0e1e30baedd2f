-- The clock went back: what has its run_at ahead again steps out of the line.
-- in: queue, the moment it moves to, the moment it stood at          out: the group of each
UPDATE taskharbor_jobs SET lined = 0
WHERE queue = ? AND state = 1 AND moment IS NOT NULL AND moment > ? AND moment <= ?
RETURNING grp
