-- Entries of the audit from before a moment, the oldest first.
-- in: the moment, how many          out: rowid
SELECT rowid FROM taskharbor_audit INDEXED BY taskharbor_audit_at WHERE at < ? ORDER BY at, id LIMIT ?
