-- The figures of one queue in some minutes.
-- in: queue, from, to before          out: minute, queue, name, number
SELECT minute, queue, name, number FROM taskharbor_figures INDEXED BY taskharbor_figures_queue
WHERE queue = ? AND minute >= ? AND minute < ?
ORDER BY minute, name
