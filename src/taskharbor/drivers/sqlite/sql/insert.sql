-- One new job; what only the store writes starts fresh.
-- in: the first 24 columns named below in their order
INSERT INTO taskharbor_jobs (
    num, id, queue, state, lined, rank, time, arrival, moment, type, payload, run_at, timeout, attempts, max_attempts,
    idempotency_key, grp, group_limit, depends_on, flow_id, metadata, created_at, priority, keep_for,
    token, worker, settled, settled_as, holds, deliveries, lost, last_error, reason
) VALUES (
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    '', '', '', '', 0, 0, 0, '', ''
)
