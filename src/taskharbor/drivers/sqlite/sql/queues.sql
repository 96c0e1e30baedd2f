-- The queues that hold a job or are paused: one lookup at the left end of each partial index, for each queue.
-- out: a name each
SELECT name FROM taskharbor_queues AS known
WHERE paused
    OR EXISTS (SELECT 1 FROM taskharbor_jobs WHERE queue = known.name AND lined = 1)
    OR EXISTS (SELECT 1 FROM taskharbor_jobs WHERE state = 2 AND queue = known.name AND moment IS NOT NULL)
    OR EXISTS (SELECT 1 FROM taskharbor_jobs WHERE state = 1 AND queue = known.name AND moment IS NOT NULL)
    OR EXISTS (SELECT 1 FROM taskharbor_jobs WHERE state = 0 AND queue = known.name)
    OR EXISTS (SELECT 1 FROM taskharbor_jobs WHERE state = 3 AND queue = known.name AND finished_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM taskharbor_jobs WHERE state = 4 AND queue = known.name AND finished_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM taskharbor_jobs WHERE state = 5 AND queue = known.name AND finished_at IS NOT NULL)
    OR EXISTS (
        SELECT 1 FROM taskharbor_jobs
        WHERE queue = known.name AND {unknown}
    )
