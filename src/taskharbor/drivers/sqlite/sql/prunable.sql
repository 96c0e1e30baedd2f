-- Finished jobs of a queue without a time of their own, from a place on, the oldest first, each with whether anything
-- unfinished needs it.
-- in: state (3 done, 5 cancelled), queue, finished before, the place: ended (finished at), num
-- out: finished_at, num, whether it is needed, and all columns, payload and result left out
SELECT job.finished_at, job.num,
    job.holds > 0 OR EXISTS (SELECT 1 FROM taskharbor_flows AS flow WHERE flow.id = job.flow_id AND flow.open > 0),
    {light}
FROM taskharbor_jobs AS job INDEXED BY taskharbor_jobs_ended
WHERE state = :state AND queue = :queue AND keep_for IS NULL AND finished_at < :before
    AND (finished_at, num) > (:ended, :num)
ORDER BY finished_at, num
