-- The ungrouped jobs of a queue that stand in line, first the first. Reads taskharbor_jobs_line from its left end: the
-- cost is that of the rows answered, whatever else is stored.
-- in: queue, how many          out: all columns of each
SELECT {columns} FROM taskharbor_jobs INDEXED BY taskharbor_jobs_line
WHERE queue = ? AND grp IS NULL AND lined = 1
ORDER BY rank, time, arrival
LIMIT ?
