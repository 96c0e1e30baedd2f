-- The store's clock was set: leases end as much later or earlier. Those that have ended stay in line, with it set back.
-- in: the step; 1: also those that have ended
UPDATE taskharbor_jobs SET moment = moment + ?
WHERE state = 2 AND moment IS NOT NULL AND lined <= ?
