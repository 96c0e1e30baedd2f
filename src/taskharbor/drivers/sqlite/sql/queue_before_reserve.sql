-- A queue before a reserve: its row, and whether anything has to be done first. One statement, because each costs a
-- few microseconds however little it finds.
-- in: queue, now, stepped
-- out: paused, at, arrived, served, groups_next; by how much the clock was set; whether time changes anything there, a group stands in turn, and any
--      record of the store is in an unknown state
SELECT paused, at, arrived, served, groups_next, clock.now - :now,
    EXISTS (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_when
        WHERE state = 1 AND queue = :queue AND moment > min(at, clock.now) AND moment <= max(at, clock.now)
    ) OR EXISTS (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_when
        WHERE state = 2 AND queue = :queue AND moment > min(at, clock.now) AND moment <= max(at, clock.now)
    ),
    EXISTS (
        SELECT 1 FROM taskharbor_groups INDEXED BY taskharbor_groups_turn WHERE queue = :queue AND turn IS NOT NULL
    ),
    EXISTS (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_unknown
        WHERE {unknown}
    )
FROM taskharbor_queues CROSS JOIN (SELECT {now} AS now) AS clock WHERE name = :queue
