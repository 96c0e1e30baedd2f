-- The blocked dependents of a job that wait for nothing else, in the order in which they were stored. One index
-- lookup for each, however many dependencies it has.
-- in: the job's num          out: a num each
SELECT job.num FROM taskharbor_edges AS edge
CROSS JOIN taskharbor_jobs AS job ON job.num = edge.dependent
WHERE edge.dependency = ? AND job.state = 0
    AND NOT EXISTS (SELECT 1 FROM taskharbor_edges AS other WHERE other.dependent = job.num AND other.open = 1)
ORDER BY edge.dependent
