-- Entries of the audit behind a place, the newest first. Those that another program damaged are left out.
-- in: since, the place (at, id), who, how many          out: at, id, rowid, whether it is theirs
SELECT at, id, rowid, :who IS NULL OR done_by = :who FROM taskharbor_audit INDEXED BY taskharbor_audit_at
WHERE at >= :since AND (at, id) < (:at, :id)
    AND typeof(at) = 'integer' AND typeof(id) = 'blob' AND typeof(done_by) = 'blob' AND typeof(data) = 'blob'
ORDER BY at DESC, id DESC LIMIT :count
