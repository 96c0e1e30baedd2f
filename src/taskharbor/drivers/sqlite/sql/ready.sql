-- The ungrouped jobs of a queue that stand in line, first the first. Reads taskharbor_jobs_line from its left end: the
-- cost is that of the rows returned, whatever else is stored. Only what a plain job has, because every column costs:
-- all of them cost twice as much as these.
-- in: queue, how many
-- out: the columns below; the last says whether it was never delivered and nothing stands in any other of its record
SELECT num, id, type, payload, attempts, max_attempts, deliveries, lost, created_at, priority, state,
    coalesce(
        run_at, timeout, idempotency_key, depends_on, flow_id, handed_to, metadata, failed_at, finished_at, result,
        nullif(last_error, ''), nullif(reason, ''), nullif(group_limit, 0), edits, keep_for
    ) IS NULL AND deliveries = 0
FROM taskharbor_jobs INDEXED BY taskharbor_jobs_line
WHERE queue = ? AND grp IS NULL AND lined = 1
ORDER BY rank, time, arrival
LIMIT ?
