-- Two lookups for each queue: has it a schedule that is due behind a place, and when will the next one be due?
-- in: queues as JSON, now, the place (at, name), the last moment that can be stored
-- out: queue, whether something may be due there, the moment or NULL
SELECT asked.value,
    EXISTS (
        SELECT 1 FROM taskharbor_schedules INDEXED BY taskharbor_schedules_due
        WHERE queue = asked.value AND next_at <= :now AND (next_at, name) > (:at, :name)
    ),
    (
        SELECT next_at FROM taskharbor_schedules INDEXED BY taskharbor_schedules_due
        WHERE queue = asked.value AND next_at > :now AND next_at <= :last AND typeof(next_at) = 'integer'
        ORDER BY next_at LIMIT 1
    )
FROM json_each(:queues) AS asked
