-- Since when the oldest job waits that stands in line: one lookup for each priority of the ungrouped jobs, and one for each
-- group, because the line is ordered by these first. Reads one index and no row of a job.
-- in: queue, now, how many priorities and groups          out: the time or NULL, the number of both
WITH RECURSIVE
ranks(rank) AS (
    SELECT (
        SELECT rank FROM taskharbor_jobs INDEXED BY taskharbor_jobs_line
        WHERE queue = :queue AND grp IS NULL AND lined = 1 AND rank IS NOT NULL ORDER BY rank LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT job.rank FROM taskharbor_jobs AS job INDEXED BY taskharbor_jobs_line
        WHERE job.queue = :queue AND job.grp IS NULL AND job.lined = 1 AND job.rank > ranks.rank
        ORDER BY job.rank LIMIT 1
    ) FROM ranks WHERE ranks.rank IS NOT NULL
    LIMIT :looks
),
names(grp) AS (
    SELECT (
        SELECT grp FROM taskharbor_jobs INDEXED BY taskharbor_jobs_line
        WHERE queue = :queue AND grp IS NOT NULL AND lined = 1 ORDER BY grp LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT job.grp FROM taskharbor_jobs AS job INDEXED BY taskharbor_jobs_line
        WHERE job.queue = :queue AND job.grp > names.grp AND job.lined = 1 ORDER BY job.grp LIMIT 1
    ) FROM names WHERE names.grp IS NOT NULL
    LIMIT :looks
),
firsts(time) AS (
    SELECT (
        SELECT job.time FROM taskharbor_jobs AS job INDEXED BY taskharbor_jobs_line
        WHERE job.queue = :queue AND job.grp IS NULL AND job.lined = 1 AND job.rank = ranks.rank
            AND (job.moment IS NULL OR job.moment <= :now) AND typeof(job.time) = 'integer'
        ORDER BY job.time, job.arrival LIMIT 1
    ) FROM ranks
    UNION ALL
    SELECT (
        SELECT job.time FROM taskharbor_jobs AS job INDEXED BY taskharbor_jobs_line
        WHERE job.queue = :queue AND job.grp = names.grp AND job.lined = 1
            AND (job.moment IS NULL OR job.moment <= :now) AND typeof(job.time) = 'integer'
        ORDER BY job.rank, job.time, job.arrival LIMIT 1
    ) FROM names
)
SELECT min(time), max((SELECT count(*) FROM ranks), (SELECT count(*) FROM names)) FROM firsts
