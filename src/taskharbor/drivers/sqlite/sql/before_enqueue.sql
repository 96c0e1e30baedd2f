-- What the enqueue of one plain job needs to know, in one statement: each costs some microseconds, however little it
-- finds.
-- in: id, queue
-- out: whether the id is stored; the number of taskharbor_meta; the highest number of a job; the row of the queue, or NULLs
SELECT EXISTS (SELECT 1 FROM taskharbor_jobs WHERE id = ?), meta.number, (SELECT max(num) FROM taskharbor_jobs),
    queue.paused, queue.at, queue.arrived, queue.served, queue.groups_next
FROM taskharbor_meta AS meta LEFT JOIN taskharbor_queues AS queue ON queue.name = ?
