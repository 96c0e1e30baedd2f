-- One schedule.
-- in: name, the largest size of a body          out: name, queue, revision, next_at, body (NULL: it cannot be one)
SELECT name, queue, revision, next_at, CASE WHEN length(body) <= :size THEN body END
FROM taskharbor_schedules WHERE name = :name
