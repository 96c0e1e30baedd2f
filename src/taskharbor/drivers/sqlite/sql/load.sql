-- One job by its id.
-- in: id          out: all columns
SELECT {columns} FROM taskharbor_jobs WHERE id = ?
