-- Every statement of a program of schema 2, as its last version had them: frozen, for test_sqlite_upgrade.py.

-- ack
UPDATE taskharbor_jobs INDEXED BY taskharbor_jobs_id
SET state = 3, lined = 0, moment = NULL, settled = token, settled_as = 'Ack', token = '', lost = 0,
    finished_at = :now, result = CASE WHEN length(given.value) > 32 THEN CAST(substr(given.value, 34) AS BLOB) END
FROM json_each(:given) AS given
WHERE taskharbor_jobs.id = given.key AND token = substr(given.value, 1, 32) AND state = 2 AND moment > :now
    AND grp IS NULL AND flow_id IS NULL AND depends_on IS NULL
    AND NOT EXISTS (SELECT 1 FROM taskharbor_edges AS edge WHERE edge.dependency = taskharbor_jobs.num)
;

-- acked
SELECT job.id
FROM json_each(:given) AS given
CROSS JOIN taskharbor_jobs AS job INDEXED BY taskharbor_jobs_id
    ON job.id = given.key AND job.settled = substr(given.value, 1, 32)
WHERE job.settled_as = 'Ack'
;

-- add_figure
INSERT INTO taskharbor_figures (minute, queue, name, number) VALUES (?, ?, ?, ?)
ON CONFLICT (minute, queue, name) DO UPDATE SET number = number + excluded.number
;

-- beat
INSERT INTO taskharbor_workers (name, seen_at, info) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at, info = excluded.info
;

-- before_enqueue
SELECT EXISTS (SELECT 1 FROM taskharbor_jobs WHERE id = ?), meta.number, (SELECT max(num) FROM taskharbor_jobs),
    queue.paused, queue.at, queue.arrived, queue.served, queue.groups_next
FROM taskharbor_meta AS meta LEFT JOIN taskharbor_queues AS queue ON queue.name = ?
;

-- by_num
SELECT num, id, queue, state, lined, rank, time, arrival, moment, token, worker, settled, settled_as, priority, holds, type, payload, run_at, timeout, attempts, max_attempts, deliveries, lost, idempotency_key, grp, group_limit, depends_on, flow_id, handed_to, metadata, last_error, failed_at, reason, created_at, finished_at, result, began_at, trail, error_class, fingerprint, note, edits, keep_for FROM taskharbor_jobs WHERE num IN (SELECT value FROM json_each(?))
;

-- close_edges
UPDATE taskharbor_edges SET open = 0 WHERE dependency = ? AND open = 1
;

-- counts
SELECT queue, iif(moment > :now, 'inflight', 'ready') AS shown, count(*)
    FROM taskharbor_jobs INDEXED BY taskharbor_jobs_when WHERE state = 2 AND moment IS NOT NULL GROUP BY 1, 2
UNION ALL
SELECT queue, iif(moment > :now, 'scheduled', 'ready') AS shown, count(*)
    FROM taskharbor_jobs INDEXED BY taskharbor_jobs_when WHERE state = 1 AND moment IS NOT NULL GROUP BY 1, 2
UNION ALL
SELECT queue, 'ready', count(*)
    FROM taskharbor_jobs INDEXED BY taskharbor_jobs_line
    WHERE lined = 1 AND state = 1 AND moment IS NULL GROUP BY 1
UNION ALL
SELECT queue, 'blocked', count(*) FROM taskharbor_jobs INDEXED BY taskharbor_jobs_blocked WHERE state = 0 GROUP BY 1
UNION ALL
SELECT queue, CASE state WHEN 3 THEN 'done' WHEN 4 THEN 'dlq' ELSE 'cancelled' END AS shown, count(*)
    FROM taskharbor_jobs INDEXED BY taskharbor_jobs_ended
    WHERE state IN (3, 4, 5) AND finished_at IS NOT NULL GROUP BY 1, 2
UNION ALL
SELECT queue, 'dlq', count(*) FROM taskharbor_jobs INDEXED BY taskharbor_jobs_unknown
    WHERE state IS NOT 0 AND state IS NOT 1 AND state IS NOT 2 AND state IS NOT 3 AND state IS NOT 4 AND state IS NOT 5 GROUP BY 1
ORDER BY 1
;

-- counts_to_cap
SELECT known.name,
    (SELECT count(*) FROM (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_when
        WHERE state = 2 AND queue = known.name AND moment > :now LIMIT :cap)),
    (SELECT count(*) FROM (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_when
        WHERE state = 1 AND queue = known.name AND moment > :now LIMIT :cap)),
    (SELECT count(*) FROM (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_line
        WHERE queue = known.name AND lined = 1 AND (state = 1 OR state = 2)
            AND (moment IS NULL OR moment <= :now)
        LIMIT :cap))
    + (SELECT count(*) FROM (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_when
        WHERE state = 1 AND queue = known.name AND moment > known.at AND moment <= :now LIMIT :cap))
    + (SELECT count(*) FROM (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_when
        WHERE state = 2 AND queue = known.name AND moment > known.at AND moment <= :now LIMIT :cap)),
    (SELECT count(*) FROM (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_blocked
        WHERE state = 0 AND queue = known.name LIMIT :cap)),
    (SELECT count(*) FROM (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_ended
        WHERE state = 3 AND queue = known.name AND finished_at IS NOT NULL LIMIT :cap)),
    (SELECT count(*) FROM (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_ended
        WHERE state = 4 AND queue = known.name AND finished_at IS NOT NULL LIMIT :cap))
    + (SELECT count(*) FROM (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_unknown
        WHERE queue = known.name AND state IS NOT 0 AND state IS NOT 1 AND state IS NOT 2 AND state IS NOT 3 AND state IS NOT 4 AND state IS NOT 5 LIMIT :cap)),
    (SELECT count(*) FROM (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_ended
        WHERE state = 5 AND queue = known.name AND finished_at IS NOT NULL LIMIT :cap))
FROM taskharbor_queues AS known
;

-- dependents
SELECT num, id, queue, state, lined, rank, time, arrival, moment, token, worker, settled, settled_as, priority, holds, type, payload, run_at, timeout, attempts, max_attempts, deliveries, lost, idempotency_key, grp, group_limit, depends_on, flow_id, handed_to, metadata, last_error, failed_at, reason, created_at, finished_at, result, began_at, trail, error_class, fingerprint, note, edits, keep_for FROM taskharbor_jobs
WHERE num IN (SELECT dependent FROM taskharbor_edges WHERE dependency = ?)
ORDER BY num
;

-- extend
UPDATE taskharbor_jobs SET moment = max(moment, ?)
WHERE id = ? AND state = 2 AND token = ? AND moment > ? AND lined = 0
RETURNING queue, moment
;

-- extend_with_note
UPDATE taskharbor_jobs SET moment = max(moment, ?), note = ?
WHERE id = ? AND state = 2 AND token = ? AND moment > ? AND lined = 0
RETURNING queue, moment
;

-- figures
SELECT minute, queue, name, number FROM taskharbor_figures WHERE minute >= ? AND minute < ? ORDER BY minute, queue, name
;

-- figures_of_queue
SELECT minute, queue, name, number FROM taskharbor_figures INDEXED BY taskharbor_figures_queue
WHERE queue = ? AND minute >= ? AND minute < ?
ORDER BY minute, name
;

-- flow_add
INSERT INTO taskharbor_flows (id, members, open) VALUES (?, 1, 1)
ON CONFLICT (id) DO UPDATE SET members = members + 1, open = open + 1
;

-- flows
SELECT flow.id,
    (
        SELECT created_at FROM taskharbor_jobs INDEXED BY taskharbor_jobs_flow
        WHERE flow_id = flow.id ORDER BY id LIMIT 1
    ),
    (
        SELECT created_at FROM taskharbor_jobs INDEXED BY taskharbor_jobs_flow
        WHERE flow_id = flow.id ORDER BY id DESC LIMIT 1
    ),
    EXISTS (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_stopped
        WHERE flow_id = flow.id AND state IS NOT 0 AND state IS NOT 1 AND state IS NOT 2 AND state IS NOT 3 AND state < 5
    ) OR EXISTS (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_stopped
        WHERE flow_id = flow.id AND state IS NOT 0 AND state IS NOT 1 AND state IS NOT 2 AND state IS NOT 3 AND state > 5
    ) OR EXISTS (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_stopped
        WHERE flow_id = flow.id AND state IS NOT 0 AND state IS NOT 1 AND state IS NOT 2 AND state IS NOT 3 AND state IS NULL
    ),
    EXISTS (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_stopped
        WHERE flow_id = flow.id AND state IS NOT 0 AND state IS NOT 1 AND state IS NOT 2 AND state IS NOT 3 AND state = 5
    ),
    flow.open > 0
FROM taskharbor_flows AS flow
;

-- grant
UPDATE taskharbor_jobs
SET lost = lost + (state = 2), run_at = CASE state WHEN 2 THEN NULL ELSE run_at END,
    state = 2, lined = 0, moment = ?, token = given.value, worker = ?, began_at = ?, deliveries = deliveries + 1,
    settled = '', settled_as = ''
FROM json_each(?) AS given
WHERE num = CAST(given.key AS INTEGER)
;

-- group_flush
INSERT INTO taskharbor_groups (queue, name, inflight) VALUES (?, ?, ?)
ON CONFLICT (queue, name) DO UPDATE SET inflight = inflight + excluded.inflight
;

-- group_forget
DELETE FROM taskharbor_groups
WHERE queue = :queue AND name = :name AND slots IS NULL AND inflight = 0 AND NOT EXISTS (
    SELECT 1 FROM taskharbor_jobs AS job WHERE job.queue = :queue AND job.grp = :name AND job.lined = 1
)
;

-- group_head
SELECT num, id, queue, state, lined, rank, time, arrival, moment, token, worker, settled, settled_as, priority, holds, type, payload, run_at, timeout, attempts, max_attempts, deliveries, lost, idempotency_key, grp, group_limit, depends_on, flow_id, handed_to, metadata, last_error, failed_at, reason, created_at, finished_at, result, began_at, trail, error_class, fingerprint, note, edits, keep_for FROM taskharbor_jobs INDEXED BY taskharbor_jobs_line
WHERE queue = ? AND grp = ? AND lined = 1
ORDER BY rank, time, arrival
LIMIT 1
;

-- group_turn
UPDATE taskharbor_groups
SET turn = CASE
    WHEN inflight < coalesce(slots, 1) AND EXISTS (
        SELECT 1 FROM taskharbor_jobs AS job
        WHERE job.queue = taskharbor_groups.queue AND job.grp = taskharbor_groups.name AND job.lined = 1
    ) THEN coalesce(turn, ?)
END
WHERE queue = ? AND name = ?
RETURNING turn
;

-- hold
UPDATE taskharbor_jobs SET holds = holds + 1
WHERE id IN (SELECT value FROM json_each(:ids))
    AND NOT EXISTS (
        SELECT 1 FROM taskharbor_edges AS edge
        WHERE edge.dependency = taskharbor_jobs.num AND edge.dependent = :num AND edge.unfinished = 1
    )
;

-- insert
INSERT INTO taskharbor_jobs (
    num, id, queue, state, lined, rank, time, arrival, moment, type, payload, run_at, timeout, attempts, max_attempts,
    idempotency_key, grp, group_limit, depends_on, flow_id, metadata, created_at, priority, keep_for,
    token, worker, settled, settled_as, holds, deliveries, lost, last_error, reason
) VALUES (
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    '', '', '', '', 0, 0, 0, '', ''
)
;

-- kept
SELECT job.finished_at + job.keep_for, job.num,
    job.holds > 0 OR EXISTS (SELECT 1 FROM taskharbor_flows AS flow WHERE flow.id = job.flow_id AND flow.open > 0),
    num, id, queue, state, lined, rank, time, arrival, moment, token, worker, settled, settled_as, priority, holds, type, x'' AS payload, run_at, timeout, attempts, max_attempts, deliveries, lost, idempotency_key, grp, group_limit, depends_on, flow_id, handed_to, metadata, last_error, failed_at, reason, created_at, finished_at, NULL AS result, began_at, NULL AS trail, error_class, fingerprint, note, edits, keep_for
FROM taskharbor_jobs AS job INDEXED BY taskharbor_jobs_kept
WHERE state = :state AND queue = :queue AND keep_for IS NOT NULL AND finished_at IS NOT NULL
    AND finished_at + keep_for < :present
    AND finished_at + keep_for >= :ended
    AND (finished_at + keep_for, num) > (:ended, :num)
    AND (typeof(keep_for) = 'integer' OR finished_at < :before)
ORDER BY finished_at + keep_for, num
;

-- known_ids
SELECT job.id FROM json_each(?) AS asked CROSS JOIN taskharbor_jobs AS job ON job.id = asked.value
;

-- known_key
SELECT id FROM taskharbor_jobs WHERE queue = ? AND idempotency_key = ?
;

-- leased_by
SELECT num, id, queue, state, lined, rank, time, arrival, moment, token, worker, settled, settled_as, priority, holds, type, payload, run_at, timeout, attempts, max_attempts, deliveries, lost, idempotency_key, grp, group_limit, depends_on, flow_id, handed_to, metadata, last_error, failed_at, reason, created_at, finished_at, result, began_at, trail, error_class, fingerprint, note, edits, keep_for FROM taskharbor_jobs INDEXED BY taskharbor_jobs_when
WHERE state = 2 AND moment > ? AND worker = ?
ORDER BY arrival
;

-- link
INSERT INTO taskharbor_edges (dependency, dependent, unfinished, open)
SELECT num, :num, 1, state IS NOT 3 FROM taskharbor_jobs WHERE id IN (SELECT value FROM json_each(:ids))
ON CONFLICT (dependency, dependent) DO UPDATE SET unfinished = 1
;

-- load
SELECT num, id, queue, state, lined, rank, time, arrival, moment, token, worker, settled, settled_as, priority, holds, type, payload, run_at, timeout, attempts, max_attempts, deliveries, lost, idempotency_key, grp, group_limit, depends_on, flow_id, handed_to, metadata, last_error, failed_at, reason, created_at, finished_at, result, began_at, trail, error_class, fingerprint, note, edits, keep_for FROM taskharbor_jobs WHERE id = ?
;

-- move_back_due
UPDATE taskharbor_jobs INDEXED BY taskharbor_jobs_when SET lined = 0
WHERE state = 1 AND queue = ? AND moment > ? AND moment <= ?
RETURNING grp
;

-- move_back_expired
UPDATE taskharbor_jobs INDEXED BY taskharbor_jobs_when SET lined = 0
WHERE state = 2 AND queue = ? AND moment > ? AND moment <= ?
RETURNING grp
;

-- move_due
UPDATE taskharbor_jobs INDEXED BY taskharbor_jobs_when SET lined = 1
WHERE state = 1 AND queue = ? AND moment > ? AND moment <= ?
RETURNING grp
;

-- move_expired
UPDATE taskharbor_jobs INDEXED BY taskharbor_jobs_when SET lined = 1, time = moment
WHERE state = 2 AND queue = ? AND moment > ? AND moment <= ?
RETURNING grp
;

-- next_group
SELECT name FROM taskharbor_groups INDEXED BY taskharbor_groups_turn
WHERE queue = ? AND turn IS NOT NULL
ORDER BY turn
LIMIT 1
;

-- old_figures
SELECT minute, queue, name FROM taskharbor_figures WHERE minute < ? ORDER BY minute, queue, name LIMIT ?
;

-- plan_facts
SELECT job.id, job.state, job.handed_to, job.depends_on
FROM json_each(?) AS asked CROSS JOIN taskharbor_jobs AS job ON job.id = asked.value
;

-- prunable
SELECT job.finished_at, job.num,
    job.holds > 0 OR EXISTS (SELECT 1 FROM taskharbor_flows AS flow WHERE flow.id = job.flow_id AND flow.open > 0),
    num, id, queue, state, lined, rank, time, arrival, moment, token, worker, settled, settled_as, priority, holds, type, x'' AS payload, run_at, timeout, attempts, max_attempts, deliveries, lost, idempotency_key, grp, group_limit, depends_on, flow_id, handed_to, metadata, last_error, failed_at, reason, created_at, finished_at, NULL AS result, began_at, NULL AS trail, error_class, fingerprint, note, edits, keep_for
FROM taskharbor_jobs AS job INDEXED BY taskharbor_jobs_ended
WHERE state = :state AND queue = :queue AND keep_for IS NULL AND finished_at < :before
    AND (finished_at, num) > (:ended, :num)
ORDER BY finished_at, num
;

-- queue_before_reserve
SELECT paused, at, arrived, served, groups_next,
    EXISTS (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_when
        WHERE state = 1 AND queue = :queue AND moment > min(at, :now) AND moment <= max(at, :now)
    ) OR EXISTS (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_when
        WHERE state = 2 AND queue = :queue AND moment > min(at, :now) AND moment <= max(at, :now)
    ),
    EXISTS (
        SELECT 1 FROM taskharbor_groups INDEXED BY taskharbor_groups_turn WHERE queue = :queue AND turn IS NOT NULL
    ),
    EXISTS (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_unknown
        WHERE state IS NOT 0 AND state IS NOT 1 AND state IS NOT 2 AND state IS NOT 3 AND state IS NOT 4 AND state IS NOT 5
    )
FROM taskharbor_queues WHERE name = :queue
;

-- queue_forget
DELETE FROM taskharbor_queues
WHERE name = :queue AND NOT paused
    AND NOT EXISTS (SELECT 1 FROM taskharbor_groups WHERE queue = :queue)
    AND NOT EXISTS (SELECT 1 FROM taskharbor_jobs WHERE queue = :queue AND lined = 1)
    AND NOT EXISTS (SELECT 1 FROM taskharbor_jobs WHERE state IN (1, 2) AND queue = :queue AND moment IS NOT NULL)
    AND NOT EXISTS (SELECT 1 FROM taskharbor_jobs WHERE state = 0 AND queue = :queue)
    AND NOT EXISTS (SELECT 1 FROM taskharbor_jobs WHERE state IN (3, 4, 5) AND queue = :queue AND finished_at IS NOT NULL)
    AND NOT EXISTS (
        SELECT 1 FROM taskharbor_jobs WHERE queue = :queue AND state IS NOT 0 AND state IS NOT 1 AND state IS NOT 2 AND state IS NOT 3 AND state IS NOT 4 AND state IS NOT 5
    )
;

-- queue_save
INSERT INTO taskharbor_queues (name, paused, at, arrived, served, groups_next) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET
    paused = excluded.paused, at = excluded.at, arrived = excluded.arrived, served = excluded.served,
    groups_next = excluded.groups_next
;

-- queues
SELECT name FROM taskharbor_queues AS known
WHERE paused
    OR EXISTS (SELECT 1 FROM taskharbor_jobs WHERE queue = known.name AND lined = 1)
    OR EXISTS (SELECT 1 FROM taskharbor_jobs WHERE state = 2 AND queue = known.name AND moment IS NOT NULL)
    OR EXISTS (SELECT 1 FROM taskharbor_jobs WHERE state = 1 AND queue = known.name AND moment IS NOT NULL)
    OR EXISTS (SELECT 1 FROM taskharbor_jobs WHERE state = 0 AND queue = known.name)
    OR EXISTS (SELECT 1 FROM taskharbor_jobs WHERE state = 3 AND queue = known.name AND finished_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM taskharbor_jobs WHERE state = 4 AND queue = known.name AND finished_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM taskharbor_jobs WHERE state = 5 AND queue = known.name AND finished_at IS NOT NULL)
    OR EXISTS (
        SELECT 1 FROM taskharbor_jobs
        WHERE queue = known.name AND state IS NOT 0 AND state IS NOT 1 AND state IS NOT 2 AND state IS NOT 3 AND state IS NOT 4 AND state IS NOT 5
    )
;

-- ready
SELECT num, id, type, payload, attempts, max_attempts, created_at, priority, state,
    deliveries = 0 AND coalesce(
        run_at, timeout, idempotency_key, depends_on, flow_id, metadata, edits, keep_for, nullif(group_limit, 0)
    ) IS NULL
FROM taskharbor_jobs INDEXED BY taskharbor_jobs_line
WHERE queue = ? AND grp IS NULL AND lined = 1
ORDER BY rank, time, arrival
LIMIT ?
;

-- released
SELECT job.num FROM taskharbor_edges AS edge
CROSS JOIN taskharbor_jobs AS job ON job.num = edge.dependent
WHERE edge.dependency = ? AND job.state = 0
    AND NOT EXISTS (SELECT 1 FROM taskharbor_edges AS other WHERE other.dependent = job.num AND other.open = 1)
ORDER BY edge.dependent
;

-- save
UPDATE taskharbor_jobs
SET state = ?, lined = ?, time = ?, arrival = ?, moment = ?, token = ?, worker = ?, settled = ?, settled_as = ?,
    run_at = ?, attempts = ?, lost = ?, handed_to = ?, last_error = ?, failed_at = ?, reason = ?,
    finished_at = ?, result = ?, trail = ?, error_class = ?, fingerprint = ?, note = ?
WHERE num = ?
;

-- set_limit
INSERT INTO taskharbor_groups (queue, name, slots) VALUES (?, ?, ?)
ON CONFLICT (queue, name) DO UPDATE SET slots = excluded.slots WHERE slots IS NULL
;

-- take_group_place
UPDATE taskharbor_groups SET inflight = inflight + 1, turn = NULL WHERE queue = ? AND name = ?
;

-- unhold
UPDATE taskharbor_jobs SET holds = holds - 1
WHERE num IN (SELECT dependency FROM taskharbor_edges WHERE dependent = ? AND unfinished = 1)
;

-- upcoming
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
;

-- waiting_for
SELECT job.id FROM taskharbor_edges AS edge JOIN taskharbor_jobs AS job ON job.num = edge.dependency
WHERE edge.dependent = ? AND edge.open = 1
;
