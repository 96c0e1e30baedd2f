-- Scheduled jobs of a queue whose run_at has come join their lines.
-- in: queue, the moment it stood at, the moment it moves to          out: the group and num of each
UPDATE taskharbor_jobs INDEXED BY taskharbor_jobs_when SET lined = 1
WHERE state = 1 AND queue = ? AND moment > ? AND moment <= ?
RETURNING grp, num
