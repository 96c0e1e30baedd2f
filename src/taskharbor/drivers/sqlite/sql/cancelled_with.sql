-- What was cancelled with a job that is cancelled no longer, unless it depends on another cancelled job of its flow.
-- in: num of the job, its flow, the reason of such jobs, how many at most          out: all columns of each
SELECT {columns} FROM taskharbor_jobs
WHERE num IN (SELECT dependent FROM taskharbor_edges WHERE dependency = :num) AND flow_id = :flow AND state = 5
    AND reason = :reason AND NOT EXISTS (
        SELECT 1 FROM taskharbor_edges AS edge JOIN taskharbor_jobs AS other ON other.num = edge.dependency
        WHERE edge.dependent = taskharbor_jobs.num AND other.state = 5 AND other.flow_id = :flow
    )
ORDER BY num LIMIT :limit
