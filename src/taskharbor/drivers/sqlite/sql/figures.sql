-- The figures of some minutes.
-- in: from, to before          out: minute, queue, name, number
SELECT minute, queue, name, number FROM taskharbor_figures WHERE minute >= ? AND minute < ? ORDER BY minute, queue, name
