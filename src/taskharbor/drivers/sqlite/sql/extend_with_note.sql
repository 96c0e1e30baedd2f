-- Move the end of a lease that holds, never to an earlier moment, and store what its handler reports.
-- in: new end, note, job id, token, now          out: as of extend.sql
UPDATE taskharbor_jobs SET moment = max(moment, ?), note = ?
WHERE id = ? AND state = 2 AND token = ? AND moment > ? AND lined = 0
RETURNING queue, moment
