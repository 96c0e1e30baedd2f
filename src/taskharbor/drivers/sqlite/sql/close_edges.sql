-- A job is done: none of its dependents waits for it any more.
-- in: the job's num
UPDATE taskharbor_edges SET open = 0 WHERE dependency = ? AND open = 1
