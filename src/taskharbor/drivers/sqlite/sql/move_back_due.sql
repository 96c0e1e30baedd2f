-- The clock went back: jobs whose run_at lies ahead again leave the line.
-- in: queue, the moment it moves to, the moment it stood at          out: the group of each
UPDATE taskharbor_jobs INDEXED BY taskharbor_jobs_when SET lined = 0
WHERE state = 1 AND queue = ? AND moment > ? AND moment <= ?
RETURNING grp
