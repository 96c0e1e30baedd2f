-- The ungrouped jobs of a queue that stand in line, first the first. Reads taskharbor_jobs_line from its left end: the
-- cost is that of the rows answered, whatever else is stored.
-- in: queue, how many, how many to pass over          out: all columns of each
SELECT {columns} FROM taskharbor_jobs INDEXED BY taskharbor_jobs_line
WHERE queue = ? AND lined = 1 AND grp IS NULL
ORDER BY rank, time, arrival
LIMIT ? OFFSET ?
