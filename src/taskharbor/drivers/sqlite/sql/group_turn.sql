-- A group has a turn exactly while it has a member in line and capacity. It keeps its place meanwhile.
-- in: a new number, queue, group          out: its place, or NULL
UPDATE taskharbor_groups
SET turn = CASE
    WHEN inflight < coalesce(group_limit, 1) AND EXISTS (
        SELECT 1 FROM taskharbor_jobs AS job
        WHERE job.queue = taskharbor_groups.queue AND job.grp = taskharbor_groups.name AND job.lined = 1
    ) THEN coalesce(turn, ?)
END
WHERE queue = ? AND name = ?
RETURNING turn
