-- The clock of a queue moves: scheduled jobs whose run_at it passes join their lines, and so do leased ones whose lease
-- it passes, at the moment the lease ended, with their old arrival. If it goes back, all of them leave the line again.
-- in: queue, the earlier and the later of the two moments, lined: 1 if it moves on, 0 if it goes back
-- out: the state, num and group of each
UPDATE taskharbor_jobs INDEXED BY taskharbor_jobs_when
SET lined = :lined, time = iif(:lined AND state = 2, moment, time)
WHERE state IN (1, 2) AND queue = :queue AND moment > :after AND moment <= :until
RETURNING state, num, grp
