-- The clock went back: what has its run_at ahead again steps out of the line.
-- in: queue, the moment it moves to, the moment it stood at          out: the group of each
UPDATE taskharbor_jobs INDEXED BY taskharbor_jobs_when SET lined = 0
WHERE state = 1 AND queue = ? AND moment > ? AND moment <= ?
RETURNING grp
