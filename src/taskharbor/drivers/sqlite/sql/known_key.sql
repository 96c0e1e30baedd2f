-- The job that a queue knows by an idempotency key.
-- in: queue, key as UTF-8 bytes          out: its id
SELECT id FROM taskharbor_jobs WHERE queue = ? AND idempotency_key = ?
