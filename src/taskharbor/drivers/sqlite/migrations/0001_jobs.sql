-- Jobs, their queues, groups, flows and edges, figures, the audit and schedules.
-- Every name begins with taskharbor_, because the file may be the application's own.

-- One row: the schema's number, the oldest schema whose programs may still use the file, and the last number given,
-- unless a stored job has a higher one. Whatever has an order of arrival takes a number.
CREATE TABLE taskharbor_meta (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL,
    oldest  INTEGER NOT NULL,
    number  INTEGER NOT NULL,
    boot    TEXT NOT NULL DEFAULT '',    -- the start of the machine in which its clock was last read
    apart   INTEGER NOT NULL DEFAULT 0,  -- then: the clock that is set, less the one that only counts
    stepped INTEGER NOT NULL DEFAULT 0   -- by how much the clock was set since the store was made
);
INSERT INTO taskharbor_meta (one, version, oldest, number) VALUES (1, 1, 1, 0);

-- Times are microseconds since 1970. Columns that another program could damage are not declared NOT NULL: a damaged
-- record is set aside by the next reserve, and stays readable.
CREATE TABLE taskharbor_jobs (
    num             INTEGER PRIMARY KEY,  -- order in which it was stored
    id              TEXT NOT NULL,
    queue           TEXT NOT NULL,
    state           INTEGER,  -- 0 blocked, 1 waiting, 2 leased, 3 done, 4 dlq, 5 cancelled
    lined           INTEGER,  -- 1: stands in its line, seen from taskharbor_queues.at
    rank            INTEGER,  -- -priority; 0 in a group, where priority orders nothing
    time            INTEGER,  -- when it joined the line
    arrival         INTEGER,  -- its place among those that joined at that time
    moment          INTEGER,  -- leased: the end of the lease; waiting: run_at
    token           TEXT,
    worker          TEXT,     -- whose its newest reservation was
    settled         TEXT,     -- the token of its last outcome, until it is reserved again
    settled_as      TEXT,     -- the kind of that outcome
    priority        INTEGER,
    holds           INTEGER,  -- how many unfinished jobs depend on it
    grp             TEXT,     -- before the payload: what stands behind a large one is found by walking through it
    type            TEXT,
    payload         BLOB,
    run_at          INTEGER,
    timeout         INTEGER,  -- microseconds
    attempts        INTEGER,
    max_attempts    INTEGER,
    deliveries      INTEGER,
    lost            INTEGER,
    idempotency_key BLOB,     -- UTF-8; a blob, because it may hold NUL
    group_limit     INTEGER,
    depends_on      TEXT,     -- JSON array of ids, or NULL
    flow_id         TEXT,
    handed_to       TEXT,
    metadata        TEXT,     -- JSON object, or NULL
    last_error      TEXT,
    failed_at       INTEGER,
    reason          TEXT,
    created_at      INTEGER,
    finished_at     INTEGER,
    result          BLOB,
    began_at        INTEGER,  -- its newest reservation
    lost_at         INTEGER,  -- when it was given back for a dead worker, until it is reserved again
    trail           BLOB,     -- NULL here and below: empty
    error_class     TEXT,
    fingerprint     TEXT,
    note            BLOB,
    edits           INTEGER,
    keep_for        INTEGER,  -- microseconds; NULL: as long as the store keeps jobs
    memos           INTEGER   -- 1: rows of taskharbor_steps are its own
);
CREATE UNIQUE INDEX taskharbor_jobs_id ON taskharbor_jobs (id);
CREATE UNIQUE INDEX taskharbor_jobs_key ON taskharbor_jobs (queue, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- Few indexes, and small ones: each that a change of state touches costs half a microsecond of it.
-- Who may run: ungrouped jobs in the order of the contract, grouped ones (of rank 0) in the order of their group.
CREATE INDEX taskharbor_jobs_line ON taskharbor_jobs (queue, grp, rank, time, arrival, state, moment) WHERE lined = 1;
-- What happens when: leases by their end, scheduled jobs by their run_at.
CREATE INDEX taskharbor_jobs_when ON taskharbor_jobs (state, queue, moment) WHERE moment IS NOT NULL;
-- What is done, dead or cancelled. Jobs with a time of their own stand apart, so that no prune goes through them.
CREATE INDEX taskharbor_jobs_ended ON taskharbor_jobs (state, queue, keep_for, finished_at)
    WHERE finished_at IS NOT NULL;
CREATE INDEX taskharbor_jobs_kept ON taskharbor_jobs (state, queue, finished_at + keep_for)
    WHERE keep_for IS NOT NULL AND finished_at IS NOT NULL;
CREATE INDEX taskharbor_jobs_blocked ON taskharbor_jobs (queue) WHERE state = 0;
CREATE INDEX taskharbor_jobs_flow ON taskharbor_jobs (flow_id, id) WHERE flow_id IS NOT NULL;
-- Empty unless another program wrote here. Six comparisons, because NOT IN builds its list anew for each row that
-- changes its state, which costs more than everything else about this index.
CREATE INDEX taskharbor_jobs_unknown ON taskharbor_jobs (queue)
    WHERE state IS NOT 0 AND state IS NOT 1 AND state IS NOT 2 AND state IS NOT 3 AND state IS NOT 4 AND state IS NOT 5;
-- Listings by state, for the states in which a plain job never is: it touches neither index. The comparisons come in
-- the order in which they end soonest for plain jobs.
CREATE INDEX taskharbor_jobs_state ON taskharbor_jobs (state, id)
    WHERE (state IS NOT 1 OR moment IS NOT NULL) AND state IS NOT 2 AND state IS NOT 3;
-- The members of flows that are dead or cancelled, or in an unknown state.
CREATE INDEX taskharbor_jobs_stopped ON taskharbor_jobs (flow_id, state)
    WHERE flow_id IS NOT NULL AND state IS NOT 0 AND state IS NOT 1 AND state IS NOT 2 AND state IS NOT 3;

CREATE TABLE taskharbor_queues (
    name        TEXT PRIMARY KEY,
    paused      INTEGER NOT NULL DEFAULT 0,
    at          INTEGER NOT NULL DEFAULT 0,  -- the moment from which `lined` is seen
    arrived     INTEGER NOT NULL DEFAULT 0,  -- the number of the last event after which a reserve may find more
    served      INTEGER NOT NULL DEFAULT 0,  -- the number of its last turn among other queues
    groups_next INTEGER NOT NULL DEFAULT 1   -- whose turn it is: the groups' or the ungrouped line's
) WITHOUT ROWID;

-- A row stands here while a member is in line or inflight, or a limit was set.
CREATE TABLE taskharbor_groups (
    queue       TEXT NOT NULL,
    name        TEXT NOT NULL,
    group_limit INTEGER,  -- once set; NULL counts as 1
    inflight    INTEGER NOT NULL DEFAULT 0,
    turn        INTEGER,  -- its place among the groups that have a member in line and room for it
    PRIMARY KEY (queue, name)
) WITHOUT ROWID;
CREATE INDEX taskharbor_groups_turn ON taskharbor_groups (queue, turn) WHERE turn IS NOT NULL;

CREATE TABLE taskharbor_flows (
    id        TEXT PRIMARY KEY,
    members   INTEGER NOT NULL DEFAULT 0,
    open      INTEGER NOT NULL DEFAULT 0,  -- members neither done nor cancelled
    cancelled INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- What a join waits for is stored here alone: the row of a job with ten thousand dependencies holds all their ids, and
-- to write it costs as much as a member's whole outcome.
CREATE TABLE taskharbor_edges (
    dependency INTEGER NOT NULL,
    dependent  INTEGER NOT NULL,
    unfinished INTEGER NOT NULL,  -- whether the dependent is neither done nor cancelled
    open       INTEGER NOT NULL,  -- whether the dependency is not done
    PRIMARY KEY (dependency, dependent)
) WITHOUT ROWID;
CREATE INDEX taskharbor_edges_dependent ON taskharbor_edges (dependent, open, dependency);

-- What the steps of a job returned. Without `memos` in the job's row they are left from another job, and count as none.
CREATE TABLE taskharbor_steps (
    num       INTEGER NOT NULL,
    name      TEXT NOT NULL,
    at        INTEGER NOT NULL,  -- microseconds since 1970
    execution INTEGER NOT NULL,
    value     BLOB NOT NULL,
    PRIMARY KEY (num, name)
);

-- Jobs whose dependents have to be cancelled or brought back with them: what a call has left to a prune.
CREATE TABLE taskharbor_followed (num INTEGER PRIMARY KEY);

CREATE TABLE taskharbor_workers (
    name    TEXT PRIMARY KEY,
    seen_at INTEGER NOT NULL,
    info    TEXT NOT NULL
) WITHOUT ROWID;

-- What happened in which minute (microseconds since 1970), for 72 hours.
CREATE TABLE taskharbor_figures (
    minute INTEGER NOT NULL,
    queue  TEXT NOT NULL,
    name   TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (minute, queue, name)
) WITHOUT ROWID;
CREATE INDEX taskharbor_figures_queue ON taskharbor_figures (queue, minute);

-- Who did what, for 90 days. Ids and names are bytes in UTF-8: whatever another program writes there can be read.
CREATE TABLE taskharbor_audit (
    id      BLOB NOT NULL PRIMARY KEY,
    at      INTEGER NOT NULL,  -- microseconds since 1970
    done_by BLOB NOT NULL,
    data    BLOB NOT NULL
);
CREATE INDEX taskharbor_audit_at ON taskharbor_audit (at, id);

-- Schedules. A name is bytes in UTF-8: these are in the order of code points, whatever encoding the file has.
CREATE TABLE taskharbor_schedules (
    name     BLOB NOT NULL PRIMARY KEY,
    queue    TEXT NOT NULL,  -- of its jobs
    revision TEXT NOT NULL,  -- another one for each version of the row
    next_at  INTEGER,        -- when it is due, in microseconds since 1970; NULL: never
    body     BLOB NOT NULL   -- written by core. Last, because it may be large
);
CREATE INDEX taskharbor_schedules_due ON taskharbor_schedules (queue, next_at, name) WHERE next_at IS NOT NULL;
CREATE INDEX taskharbor_schedules_queue ON taskharbor_schedules (queue, name);
