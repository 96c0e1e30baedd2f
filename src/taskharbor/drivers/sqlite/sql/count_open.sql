-- How many dependencies of a job are not done.
-- in: the job's num          out: a number
SELECT count(*) FROM taskharbor_edges AS edge JOIN taskharbor_jobs AS job ON job.num = edge.dependency
WHERE edge.dependent = ? AND job.state IS NOT 3
