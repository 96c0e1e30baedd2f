-- Flows in the order of their ids, from a place on: four index lookups for each, however many jobs it has. listing.py
-- adds the place, the order and how many.
-- out: id; created_at of its first and of its last job; the lowest and the highest state among those of its jobs that are
--      dead, cancelled or in an unknown state (-1: without one), NULL if there is none; whether any is unfinished
SELECT flow.id,
    (SELECT created_at FROM taskharbor_jobs INDEXED BY taskharbor_jobs_flow WHERE flow_id = flow.id ORDER BY id LIMIT 1),
    (
        SELECT created_at FROM taskharbor_jobs INDEXED BY taskharbor_jobs_flow
        WHERE flow_id = flow.id ORDER BY id DESC LIMIT 1
    ),
    (
        SELECT coalesce(state, -1) FROM taskharbor_jobs INDEXED BY taskharbor_jobs_stopped
        WHERE flow_id = flow.id AND {stopped} ORDER BY state LIMIT 1
    ),
    (
        SELECT state FROM taskharbor_jobs INDEXED BY taskharbor_jobs_stopped
        WHERE flow_id = flow.id AND {stopped} ORDER BY state DESC LIMIT 1
    ),
    flow.open > 0
FROM taskharbor_flows AS flow
