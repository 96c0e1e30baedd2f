-- Store a schedule in place of the one of its name.
-- in: name, queue, revision, next_at, body
INSERT INTO taskharbor_schedules (name, queue, revision, next_at, body) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET
    queue = excluded.queue, revision = excluded.revision, next_at = excluded.next_at, body = excluded.body
