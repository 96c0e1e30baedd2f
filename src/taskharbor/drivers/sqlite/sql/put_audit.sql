-- Store an entry of the audit in place of the one with its id.
-- in: id, at, done_by, data
INSERT INTO taskharbor_audit (id, at, done_by, data) VALUES (?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET at = excluded.at, done_by = excluded.done_by, data = excluded.data
