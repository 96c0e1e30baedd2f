-- Store a memo of a job whose lease holds, in place of the one with its name.
-- in: name, now, value, job id, token, now
INSERT INTO taskharbor_steps (num, name, at, execution, value)
SELECT num, ?, ?, deliveries, ? FROM taskharbor_jobs WHERE id = ? AND state = 2 AND token = ? AND moment > ?
ON CONFLICT (num, name) DO UPDATE SET at = excluded.at, execution = excluded.execution, value = excluded.value
