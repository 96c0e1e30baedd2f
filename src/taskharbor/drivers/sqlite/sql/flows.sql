-- Flows in the order of their ids, from a place on: a few index lookups for each, however many jobs it has. A job in an
-- unknown state counts as dead. listing.py adds the place, the order and how many.
-- out: id; created_at of its first and of its last job; whether any is dead, any is cancelled, any is unfinished
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
        WHERE flow_id = flow.id AND {stopped} AND state < 5
    ) OR EXISTS (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_stopped
        WHERE flow_id = flow.id AND {stopped} AND state > 5
    ) OR EXISTS (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_stopped
        WHERE flow_id = flow.id AND {stopped} AND state IS NULL
    ),
    EXISTS (
        SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_stopped
        WHERE flow_id = flow.id AND {stopped} AND state = 5
    ),
    flow.open > 0
FROM taskharbor_flows AS flow
