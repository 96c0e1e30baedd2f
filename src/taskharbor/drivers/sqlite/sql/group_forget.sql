-- Forget a group that has no limit of its own, nobody inflight and nobody in line.
-- in: queue, group
DELETE FROM taskharbor_groups
WHERE queue = ?1 AND name = ?2 AND slots IS NULL AND inflight = 0 AND NOT EXISTS (
    SELECT 1 FROM taskharbor_jobs AS job WHERE job.queue = ?1 AND job.grp = ?2 AND job.lined = 1
)
