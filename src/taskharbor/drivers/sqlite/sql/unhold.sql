-- A job is finished: those it depends on have one less that needs them.
-- in: the job's num
UPDATE taskharbor_jobs SET holds = holds - 1
WHERE num IN (SELECT dependency FROM taskharbor_edges WHERE dependent = ? AND unfinished = 1)
