-- The store's clock was set back: scheduled jobs that are due no longer leave the line.
-- in: queue, its time
-- out: the num and group of each
UPDATE taskharbor_jobs INDEXED BY taskharbor_jobs_when SET lined = 0
WHERE state = 1 AND queue = ? AND moment > ? AND lined = 1
RETURNING num, grp
