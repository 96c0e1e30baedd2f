-- The places of schedules of a queue that are due, behind a place. Those that another program damaged are left out.
-- in: queue, now, the place (at, name), how many          out: next_at, name
SELECT next_at, name FROM taskharbor_schedules INDEXED BY taskharbor_schedules_due
WHERE queue = :queue AND next_at <= :now AND (next_at, name) > (:at, :name)
    AND typeof(next_at) = 'integer' AND typeof(name) = 'blob'
ORDER BY next_at, name LIMIT :count
