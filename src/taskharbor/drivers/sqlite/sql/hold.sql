-- Count a job that is unfinished with each of its dependencies that does not count it yet.
-- in: the job's num, its dependencies' ids as JSON
UPDATE taskharbor_jobs SET holds = holds + 1
WHERE id IN (SELECT value FROM json_each(:ids))
    AND NOT EXISTS (
        SELECT 1 FROM taskharbor_edges AS edge
        WHERE edge.dependency = taskharbor_jobs.num AND edge.dependent = :num AND edge.unfinished = 1
    )
