-- The blocked jobs behind a cancelled one of their flow: they can never run.
-- in: num of the cancelled job, its flow, how many at most          out: all columns of each
SELECT {columns} FROM taskharbor_jobs
WHERE num IN (SELECT dependent FROM taskharbor_edges WHERE dependency = :num) AND flow_id = :flow AND state = 0
ORDER BY num LIMIT :limit
