-- Which of these jobs were acked by these tokens, now or before.
-- in: JSON object of job id to token as in ack.sql          out: an id each
SELECT job.id
FROM json_each(:given) AS given
CROSS JOIN taskharbor_jobs AS job INDEXED BY taskharbor_jobs_id
    ON job.id = given.key AND job.settled = substr(given.value, 1, 32)
WHERE job.settled_as = 'Ack'
