-- The ungrouped jobs of a queue that stand in line, first the first. Reads taskharbor_jobs_line from its left end: the
-- cost is that of the rows returned, whatever else is stored. Only what a plain job has, because every column costs:
-- all of them cost twice as much as these. What only an outcome writes is not looked at before the first delivery.
-- in: queue, how many
-- out: the columns below; the last says whether it was never delivered and nothing stands in any other of its record
SELECT num, id, type, payload, attempts, max_attempts, created_at, priority, state,
    deliveries = 0 AND coalesce(
        run_at, timeout, idempotency_key, depends_on, flow_id, metadata, edits, keep_for, nullif(group_limit, 0)
    ) IS NULL
FROM taskharbor_jobs INDEXED BY taskharbor_jobs_line
WHERE queue = ? AND grp IS NULL AND lined = 1
ORDER BY rank, time, arrival
LIMIT ?
