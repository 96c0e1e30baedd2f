-- Plain acks as in ack.sql, a batch in one statement: 6 µs each, one by one 11. It answers how many were acked, not
-- which: nearly always all of them, and asking costs a microsecond each.
-- INDEXED BY: else the planner, who has no figures, goes through all leases for each job.
-- in: now, JSON array of [job id, token, result as text or null]
UPDATE taskharbor_jobs INDEXED BY taskharbor_jobs_id
SET state = 3, lined = 0, moment = NULL, settled = token, settled_as = 'Ack', token = '', worker = '', lost = 0,
    finished_at = ?1, result = CAST(held.given_result AS BLOB)
FROM (
    SELECT value ->> 0 AS given_id, value ->> 1 AS given_token, value ->> 2 AS given_result FROM json_each(?2)
) AS held
WHERE id = given_id AND token = given_token AND state = 2 AND moment > ?1
    AND grp IS NULL AND flow_id IS NULL AND depends_on IS NULL
    AND NOT EXISTS (SELECT 1 FROM taskharbor_edges AS edge WHERE edge.dependency = taskharbor_jobs.num)
