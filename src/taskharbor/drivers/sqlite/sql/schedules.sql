-- Schedules behind a name, in the order of their names. Those whose name is text, not bytes, are before all others.
-- in: the name, the largest size of a body, how many
-- out: name, queue, revision, next_at, body (NULL: it cannot be one)
SELECT name, queue, revision, next_at, CASE WHEN length(body) <= :size THEN body END
FROM taskharbor_schedules WHERE name > :after ORDER BY name LIMIT :count
