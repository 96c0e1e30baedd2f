-- Which of these jobs were acked by these tokens, now or before.
-- in: JSON array of [job id, token, …]          out: id and token of each
SELECT job.id, job.settled
FROM json_each(?) AS given
CROSS JOIN taskharbor_jobs AS job INDEXED BY taskharbor_jobs_id
    ON job.id = given.value ->> 0 AND job.settled = given.value ->> 1
WHERE job.settled_as = 'Ack'
