-- The first moment after now at which a scheduled job of these queues is due or a lease ends: two lookups for each queue.
-- in: queues as JSON, now, the last moment that can be stored          out: the moment, or NULL
SELECT min((
    SELECT moment FROM taskharbor_jobs INDEXED BY taskharbor_jobs_when
    WHERE state = stored.column1 AND queue = asked.value AND moment > :now AND moment <= :last ORDER BY moment LIMIT 1
))
FROM json_each(:queues) AS asked CROSS JOIN (VALUES (1), (2)) AS stored
