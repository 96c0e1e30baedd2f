-- Delete the row of a group that has no limit of its own, and no member inflight or in line.
-- in: queue, group
DELETE FROM taskharbor_groups
WHERE queue = :queue AND name = :name AND group_limit IS NULL AND inflight = 0 AND NOT EXISTS (
    SELECT 1 FROM taskharbor_jobs AS job WHERE job.queue = :queue AND job.grp = :name AND job.lined = 1
)
