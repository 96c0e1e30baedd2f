-- As prunable.sql, for finished jobs that are kept for a time of their own, by its end. A time that another program
-- damaged counts as none.
-- in: state (3 done, 5 cancelled), queue, present: kept until before; finished before; the place: ended (kept until), num
-- out: kept until, num, whether it is needed, and all columns, payload, result and trail left out
SELECT job.finished_at + job.keep_for, job.num,
    job.holds > 0 OR EXISTS (SELECT 1 FROM taskharbor_flows AS flow WHERE flow.id = job.flow_id AND flow.open > 0),
    {light}
FROM taskharbor_jobs AS job INDEXED BY taskharbor_jobs_kept
WHERE state = :state AND queue = :queue AND keep_for IS NOT NULL AND finished_at IS NOT NULL
    AND finished_at + keep_for < :present
    AND finished_at + keep_for >= :ended  -- which is where SQLite begins; of the next line it would not see that
    AND (finished_at + keep_for, num) > (:ended, :num)
    AND (typeof(keep_for) = 'integer' OR finished_at < :before)
ORDER BY finished_at + keep_for, num
