-- What the plan of an enqueue needs to know of the jobs with these ids (drivers/planning.py).
-- in: ids as JSON
-- out: id, state, handed_to, depends_on of each job that is stored
SELECT job.id, job.state, job.handed_to, job.depends_on
FROM json_each(?) AS asked CROSS JOIN taskharbor_jobs AS job ON job.id = asked.value
