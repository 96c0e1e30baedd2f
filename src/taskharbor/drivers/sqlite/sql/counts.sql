-- How many jobs of which queue are in which state at a moment, up to a cap: reads no row of a job, and no more than that
-- many entries of an index for each number below.
-- What is in line is ready, unless the clock went back; what became due since the queue's time is ready too.
-- in: now, cap          out: queue, inflight, scheduled, ready, blocked, done, dlq, cancelled
SELECT known.name,
    (SELECT count(*) FROM (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_when
        WHERE state = 2 AND queue = known.name AND moment > :now LIMIT :cap)),
    (SELECT count(*) FROM (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_when
        WHERE state = 1 AND queue = known.name AND moment > :now LIMIT :cap)),
    (SELECT count(*) FROM (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_line
        WHERE queue = known.name AND lined = 1 AND (state = 1 OR state = 2)
            AND (moment IS NULL OR moment <= :now)
        LIMIT :cap))
    + (SELECT count(*) FROM (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_when
        WHERE state = 1 AND queue = known.name AND moment > known.at AND moment <= :now LIMIT :cap))
    + (SELECT count(*) FROM (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_when
        WHERE state = 2 AND queue = known.name AND moment > known.at AND moment <= :now LIMIT :cap)),
    (SELECT count(*) FROM (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_blocked
        WHERE state = 0 AND queue = known.name LIMIT :cap)),
    (SELECT count(*) FROM (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_ended
        WHERE state = 3 AND queue = known.name AND finished_at IS NOT NULL LIMIT :cap)),
    (SELECT count(*) FROM (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_ended
        WHERE state = 4 AND queue = known.name AND finished_at IS NOT NULL LIMIT :cap))
    + (SELECT count(*) FROM (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_unknown
        WHERE queue = known.name AND {unknown} LIMIT :cap)),
    (SELECT count(*) FROM (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_ended
        WHERE state = 5 AND queue = known.name AND finished_at IS NOT NULL LIMIT :cap))
FROM taskharbor_queues AS known
