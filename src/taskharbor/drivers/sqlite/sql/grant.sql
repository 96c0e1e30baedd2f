-- Put a job under a lease. One that was leased before is taken over: its lease had ended without an outcome.
-- in: end of the lease, token, worker, num
UPDATE taskharbor_jobs
SET lost = lost + (state = 2), run_at = CASE state WHEN 2 THEN NULL ELSE run_at END,
    state = 2, lined = 0, moment = ?, token = ?, worker = ?, deliveries = deliveries + 1, settled = '', settled_as = ''
WHERE num = ?
