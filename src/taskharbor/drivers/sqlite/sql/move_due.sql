-- Scheduled jobs of a queue whose run_at has come join their lines.
-- in: queue, the moment it stood at, the moment it moves to          out: the group of each
UPDATE taskharbor_jobs SET lined = 1
WHERE queue = ? AND state = 1 AND moment IS NOT NULL AND moment > ? AND moment <= ?
RETURNING grp
