-- Some jobs by their numbers.
-- in: JSON array of nums          out: all columns of each
SELECT {columns} FROM taskharbor_jobs WHERE num IN (SELECT value FROM json_each(?))
