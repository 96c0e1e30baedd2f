-- The first member of a group that stands in line.
-- in: queue, group          out: all columns
SELECT {columns} FROM taskharbor_jobs INDEXED BY taskharbor_jobs_line
WHERE queue = ? AND grp = ? AND lined = 1
ORDER BY rank, time, arrival
LIMIT 1
