-- Plain acks: of jobs without group, flow or edges, under leases that hold. Any other takes the long way. A batch in one
-- statement costs half of what one for each does. It reports how many were acked, not which: nearly always all.
-- INDEXED BY: otherwise the planner, which has no statistics, scans all leases for each job.
-- in: now, stepped, JSON object of job id to token, followed by = and the result's text where there is one
UPDATE taskharbor_jobs INDEXED BY taskharbor_jobs_id
SET state = 3, lined = 0, moment = NULL, settled = token, settled_as = 'Ack', token = '', lost = 0,
    finished_at = {now}, result = CASE WHEN length(given.value) > 32 THEN CAST(substr(given.value, 34) AS BLOB) END
FROM json_each(:given) AS given
WHERE taskharbor_jobs.id = given.key AND token = substr(given.value, 1, 32) AND state = 2 AND moment > {now}
    AND grp IS NULL AND flow_id IS NULL AND depends_on IS NULL
    AND NOT EXISTS (SELECT 1 FROM taskharbor_edges AS edge WHERE edge.dependency = taskharbor_jobs.num)
