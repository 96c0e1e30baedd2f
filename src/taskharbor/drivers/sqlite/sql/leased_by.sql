-- What a worker holds under leases that are valid, by arrival. Reads all leases, which are as many as jobs can run.
-- in: now, worker          out: all columns of each
SELECT {columns} FROM taskharbor_jobs INDEXED BY taskharbor_jobs_when
WHERE state = 2 AND moment > ? AND worker = ?
ORDER BY arrival
