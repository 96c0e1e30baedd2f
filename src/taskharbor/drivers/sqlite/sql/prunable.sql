-- Finished jobs of a queue that nothing unfinished needs, the oldest first.
-- in: state (3 done, 5 cancelled), queue, finished before, how many          out: all columns of each, payload and result left out
SELECT {light} FROM taskharbor_jobs AS job INDEXED BY taskharbor_jobs_ended
WHERE state = ? AND queue = ? AND finished_at < ? AND holds = 0
    AND NOT EXISTS (SELECT 1 FROM taskharbor_flows AS flow WHERE flow.id = job.flow_id AND flow.open > 0)
ORDER BY finished_at
LIMIT ?
