-- The same in one queue.
-- in: the queue, the name, the largest size of a body, how many
-- out: name, queue, revision, next_at, body (NULL: it cannot be one)
SELECT name, queue, revision, next_at, CASE WHEN length(body) <= :size THEN body END
FROM taskharbor_schedules INDEXED BY taskharbor_schedules_queue
WHERE queue = :queue AND name > :after ORDER BY name LIMIT :count
