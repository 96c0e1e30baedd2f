-- Figures of minutes before a moment, the oldest first.
-- in: the moment, how many          out: minute, queue, name
SELECT minute, queue, name FROM taskharbor_figures WHERE minute < ? ORDER BY minute, queue, name LIMIT ?
