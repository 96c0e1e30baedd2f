-- Move the end of a lease that holds, never to an earlier moment.
-- in: new end, job id, token, now          out: queue and end; nothing if it was refused, or the whole row must be checked
UPDATE taskharbor_jobs SET moment = max(moment, ?)
WHERE id = ? AND state = 2 AND token = ? AND moment > ? AND lined = 0
RETURNING queue, moment
