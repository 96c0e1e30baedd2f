-- Put jobs under leases. One that was leased before is taken over: its lease had ended without an outcome.
-- One statement for the batch costs half of what one for each job does.
-- in: end of the lease, worker, now, JSON object of num to token
UPDATE taskharbor_jobs
SET lost = lost + (state = 2), run_at = CASE state WHEN 2 THEN NULL ELSE run_at END,
    state = 2, lined = 0, moment = ?, token = given.value, worker = ?, began_at = ?, deliveries = deliveries + 1,
    settled = '', settled_as = '', lost_at = NULL
FROM json_each(?) AS given
WHERE num = CAST(given.key AS INTEGER)
