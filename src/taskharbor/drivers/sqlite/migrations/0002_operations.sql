-- Schema 2: earlier executions of a job, amendments, jobs that are kept for a time of their own, listings by state and
-- of flows, and figures. Programs of schema 1 go on working beside it: they name none of these columns, and find every
-- index that they name. A job that was given back for a dead worker has `settled_as` Lost and the moment in `settled`
-- until its next reservation, which empties both.

ALTER TABLE taskharbor_jobs ADD COLUMN began_at INTEGER;  -- its newest reservation; `worker` is whose it was
ALTER TABLE taskharbor_jobs ADD COLUMN trail BLOB;  -- NULL here and below: empty
ALTER TABLE taskharbor_jobs ADD COLUMN error_class TEXT;
ALTER TABLE taskharbor_jobs ADD COLUMN fingerprint TEXT;
ALTER TABLE taskharbor_jobs ADD COLUMN note BLOB;
ALTER TABLE taskharbor_jobs ADD COLUMN edits INTEGER;
ALTER TABLE taskharbor_jobs ADD COLUMN keep_for INTEGER;  -- microseconds; NULL: as long as the store keeps jobs

-- What is done, dead or cancelled. Jobs with a time of their own stand apart, so that no prune goes through them.
DROP INDEX taskharbor_jobs_ended;
CREATE INDEX taskharbor_jobs_ended ON taskharbor_jobs (state, queue, keep_for, finished_at)
    WHERE finished_at IS NOT NULL;
CREATE INDEX taskharbor_jobs_kept ON taskharbor_jobs (state, queue, finished_at + keep_for)
    WHERE keep_for IS NOT NULL AND finished_at IS NOT NULL;

-- Listings by state, for the states in which a plain job never is: it touches neither index. The comparisons come in
-- the order in which they end soonest for plain jobs.
CREATE INDEX taskharbor_jobs_state ON taskharbor_jobs (state, id)
    WHERE (state IS NOT 1 OR moment IS NOT NULL) AND state IS NOT 2 AND state IS NOT 3;
-- The members of flows that are dead or cancelled, or in an unknown state.
CREATE INDEX taskharbor_jobs_stopped ON taskharbor_jobs (flow_id, state)
    WHERE flow_id IS NOT NULL AND state IS NOT 0 AND state IS NOT 1 AND state IS NOT 2 AND state IS NOT 3;

-- What happened in which minute (microseconds since 1970), for 72 hours.
CREATE TABLE taskharbor_figures (
    minute INTEGER NOT NULL,
    queue  TEXT NOT NULL,
    name   TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (minute, queue, name)
) WITHOUT ROWID;
CREATE INDEX taskharbor_figures_queue ON taskharbor_figures (queue, minute);
