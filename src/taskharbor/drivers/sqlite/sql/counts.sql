-- How many jobs of which queue are in which state at a moment. Each part reads one partial index and no row of a job:
-- every job is in exactly one part.
-- in: now          out: queue, state, number; a queue and state may come more than once
SELECT queue, iif(moment > :now, 'inflight', 'ready') AS shown, count(*)
    FROM taskharbor_jobs INDEXED BY taskharbor_jobs_when WHERE state = 2 AND moment IS NOT NULL GROUP BY 1, 2
UNION ALL
SELECT queue, iif(moment > :now, 'scheduled', 'ready') AS shown, count(*)
    FROM taskharbor_jobs INDEXED BY taskharbor_jobs_when WHERE state = 1 AND moment IS NOT NULL GROUP BY 1, 2
UNION ALL
SELECT queue, 'ready', count(*)
    FROM taskharbor_jobs INDEXED BY taskharbor_jobs_line
    WHERE lined = 1 AND state = 1 AND moment IS NULL GROUP BY 1
UNION ALL
SELECT queue, 'blocked', count(*) FROM taskharbor_jobs INDEXED BY taskharbor_jobs_blocked WHERE state = 0 GROUP BY 1
UNION ALL
SELECT queue, CASE state WHEN 3 THEN 'done' WHEN 4 THEN 'dlq' ELSE 'cancelled' END AS shown, count(*)
    FROM taskharbor_jobs INDEXED BY taskharbor_jobs_ended
    WHERE state IN (3, 4, 5) AND finished_at IS NOT NULL GROUP BY 1, 2
UNION ALL
SELECT queue, 'dlq', count(*) FROM taskharbor_jobs INDEXED BY taskharbor_jobs_unknown
    WHERE {unknown} GROUP BY 1
ORDER BY 1
