-- An edge from each dependency that is stored to a job that is unfinished.
-- in: the job's num, its dependencies' ids as JSON
INSERT INTO taskharbor_edges (dependency, dependent, unfinished, open)
SELECT num, :num, 1, state IS NOT 3 FROM taskharbor_jobs WHERE id IN (SELECT value FROM json_each(:ids))
ON CONFLICT (dependency, dependent) DO UPDATE SET unfinished = 1
