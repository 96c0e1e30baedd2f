-- The jobs of a group (NULL: the ungrouped ones) that stand in line and are ready, first the first.
-- in: queue, group, now, how many          out: rank, time, arrival, id
SELECT CAST(rank AS INTEGER), CAST(time AS INTEGER), CAST(arrival AS INTEGER), id
FROM taskharbor_jobs INDEXED BY taskharbor_jobs_line
WHERE queue = ? AND grp IS ? AND lined = 1 AND (moment IS NULL OR moment <= ?)
ORDER BY rank, time, arrival
LIMIT ?
