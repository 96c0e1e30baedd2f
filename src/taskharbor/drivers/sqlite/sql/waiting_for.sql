-- The dependencies of a job that are not done.
-- in: the job's num          out: an id each
SELECT job.id FROM taskharbor_edges AS edge JOIN taskharbor_jobs AS job ON job.num = edge.dependency
WHERE edge.dependent = ? AND edge.open = 1
