-- Note that a worker is alive.
-- in: name, seen at, what it says of itself as JSON
INSERT INTO taskharbor_workers (name, seen_at, info) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at, info = excluded.info
