-- The plain ack: of a job without group, flow or edges, under a lease that holds. Any other takes the long way.
-- in: now, result, job id, token
UPDATE taskharbor_jobs
SET state = 3, lined = 0, moment = NULL, settled = token, settled_as = 'Ack', token = '', worker = '', lost = 0,
    finished_at = ?1, result = ?2
WHERE id = ?3 AND state = 2 AND token = ?4 AND moment > ?1
    AND grp IS NULL AND flow_id IS NULL AND depends_on IS NULL
    AND NOT EXISTS (SELECT 1 FROM taskharbor_edges AS edge WHERE edge.dependency = taskharbor_jobs.num)
