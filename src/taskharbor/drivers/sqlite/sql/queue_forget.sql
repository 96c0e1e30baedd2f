-- Forget a queue that holds no job, is not paused and has no group with a limit of its own: names come and go.
-- in: queue
DELETE FROM taskharbor_queues AS known
WHERE name = ? AND NOT paused
    AND NOT EXISTS (SELECT 1 FROM taskharbor_groups WHERE queue = known.name) AND NOT {has_jobs}
