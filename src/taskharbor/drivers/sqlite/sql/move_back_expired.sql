-- The clock went back: leases that had expired are valid again.
-- in: queue, the moment it moves to, the moment it stood at          out: the group of each
UPDATE taskharbor_jobs INDEXED BY taskharbor_jobs_when SET lined = 0
WHERE state = 2 AND queue = ? AND moment > ? AND moment <= ?
RETURNING grp
