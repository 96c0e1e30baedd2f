-- The jobs that depend on a job, in the order in which they were stored.
-- in: the job's num          out: all columns of each
SELECT {columns} FROM taskharbor_jobs
WHERE num IN (SELECT dependent FROM taskharbor_edges WHERE dependency = ?)
ORDER BY num
