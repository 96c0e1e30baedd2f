-- A job is done: its blocked dependents wait for one less.
-- in: the job's num          out: num and open of each
UPDATE taskharbor_jobs SET open = open - 1
WHERE state = 0 AND num IN (SELECT dependent FROM taskharbor_edges WHERE dependency = ?)
RETURNING num, open
