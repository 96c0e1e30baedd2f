-- Forget a queue that holds no job, is not paused and has no group with a limit of its own: names come and go.
-- in: queue
DELETE FROM taskharbor_queues
WHERE name = :queue AND NOT paused
    AND NOT EXISTS (SELECT 1 FROM taskharbor_groups WHERE queue = :queue)
    AND NOT EXISTS (SELECT 1 FROM taskharbor_jobs WHERE queue = :queue AND lined = 1)
    AND NOT EXISTS (SELECT 1 FROM taskharbor_jobs WHERE state IN (1, 2) AND queue = :queue AND moment IS NOT NULL)
    AND NOT EXISTS (SELECT 1 FROM taskharbor_jobs WHERE state = 0 AND queue = :queue)
    AND NOT EXISTS (SELECT 1 FROM taskharbor_jobs WHERE state IN (3, 4, 5) AND queue = :queue AND finished_at IS NOT NULL)
    AND NOT EXISTS (
        SELECT 1 FROM taskharbor_jobs WHERE queue = :queue AND {unknown}
    )
