-- The first moment after now at which a scheduled job of these queues is due or a lease ends: two lookups for each queue.
-- in: queues as JSON, now, the last moment that can be stored          out: the moment, or NULL
SELECT min(moment) FROM (
    SELECT (
        SELECT moment FROM taskharbor_jobs INDEXED BY taskharbor_jobs_when
        WHERE state = 1 AND queue = asked.value AND moment > :now AND moment <= :last ORDER BY moment LIMIT 1
    ) AS moment FROM json_each(:queues) AS asked
    UNION ALL
    SELECT (
        SELECT moment FROM taskharbor_jobs INDEXED BY taskharbor_jobs_when
        WHERE state = 2 AND queue = asked.value AND moment > :now AND moment <= :last ORDER BY moment LIMIT 1
    ) AS moment FROM json_each(:queues) AS asked
)
