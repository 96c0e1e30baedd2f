-- The queues that hold a job or are paused.
-- out: a name each
SELECT name FROM taskharbor_queues AS known WHERE paused OR {has_jobs}
