-- The queues that hold a job or are paused: a look at the left end of each partial index, for each queue.
-- out: a name each
SELECT name FROM taskharbor_queues AS known
WHERE paused
    OR EXISTS (SELECT 1 FROM taskharbor_jobs WHERE queue = known.name AND lined = 1 AND grp IS NULL)
    OR EXISTS (SELECT 1 FROM taskharbor_jobs WHERE queue = known.name AND lined = 1 AND grp IS NOT NULL)
    OR EXISTS (SELECT 1 FROM taskharbor_jobs WHERE queue = known.name AND state = 2)
    OR EXISTS (SELECT 1 FROM taskharbor_jobs WHERE queue = known.name AND state = 1 AND moment IS NOT NULL)
    OR EXISTS (SELECT 1 FROM taskharbor_jobs WHERE queue = known.name AND state = 0)
    OR EXISTS (SELECT 1 FROM taskharbor_jobs WHERE queue = known.name AND state = 4)
    OR EXISTS (SELECT 1 FROM taskharbor_jobs WHERE queue = known.name AND state IN (3, 5))
    OR EXISTS (
        SELECT 1 FROM taskharbor_jobs
        WHERE queue = known.name AND (state IS NULL OR state NOT IN (0, 1, 2, 3, 4, 5))
    )
