-- Leases of a queue that are over: their jobs join the line at the moment they ended, with their old arrival.
-- in: queue, the moment it stood at, the moment it moves to          out: the group and num of each
UPDATE taskharbor_jobs INDEXED BY taskharbor_jobs_when SET lined = 1, time = moment
WHERE state = 2 AND queue = ? AND moment > ? AND moment <= ?
RETURNING grp, num
