-- Move the end of a lease that holds, never to an earlier moment, and store what its handler reports: NULL leaves the
-- note as it is, and an empty one is stored as NULL.
-- in: new end, note, job id, token, now
-- out: queue and end; nothing if it was refused, or the whole row must be checked
UPDATE taskharbor_jobs SET moment = max(moment, ?), note = nullif(coalesce(?, note), x'')
WHERE id = ? AND state = 2 AND token = ? AND moment > ? AND lined = 0
RETURNING queue, moment
