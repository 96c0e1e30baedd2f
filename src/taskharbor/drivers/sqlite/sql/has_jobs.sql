-- A condition in other statements: whether the queue `known` holds a job. One lookup at the left end of each partial
-- index.
(
    EXISTS (SELECT 1 FROM taskharbor_jobs WHERE queue = known.name AND lined = 1)
    OR EXISTS (SELECT 1 FROM taskharbor_jobs WHERE state IN (1, 2) AND queue = known.name AND moment IS NOT NULL)
    OR EXISTS (SELECT 1 FROM taskharbor_jobs WHERE state = 0 AND queue = known.name)
    OR EXISTS (SELECT 1 FROM taskharbor_jobs WHERE state IN (3, 4, 5) AND queue = known.name AND finished_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM taskharbor_jobs WHERE queue = known.name AND {unknown})
)
