-- The tables. Times are whole microseconds since 1970 (bigint): exact on every kind of connection.
-- Texts of users are never pasted into a statement; names are ordered by code point (collate "C").
--
-- jobs.state   0 blocked    waits for `open` dependencies
--              1 scheduled  not in the line yet: its run_at is ahead, or it is grouped and no reserve has counted it
--              2 queued     in the line
--              3 leased     `wake` is the end of the lease
--              4 expired    its lease had ended when a reserve came: in the line, and still with its token
-- history      5 done   6 dead (dlq)   7 cancelled
-- wake         from this time on a reserve may take the job
-- open         how many dependencies are not done, while it is blocked
-- due, seq     its place in the line: when it joined it, then its arrival
-- stored       its arrival when it was enqueued: dependents are released in this order
-- settled      the token of its last outcome, until it is reserved again; settled_as: the kind of that outcome
-- worker       the worker of the newest reservation, also when the lease is over (`ran_on`); began_at: when it was made
-- lost_by      null, or a JSON array: the last delivery that was lost, its worker, when it began, when it ended. It counts
--              only for the delivery that follows: so nothing but a requeue has to clear it
-- trail, note, error_class, fingerprint, edits, keep_for: as in JobRecord; null for what is empty or 0
-- memos        whether rows of `steps` are its own; null: no. Rows without it are left from another job, and count as none
--
-- The columns that are compared most come first: they are found without decoding the rest of a row.
-- No column except the id has a check: the next reserve moves a damaged record to the dead letter queue, and that is
-- easier to live with than a program that cannot be rolled back.

-- A row for each migration: the number of the schema, and the oldest number whose programs may still use it.
-- Each table has a primary key, because a database may publish all of them: without one no row could be changed.
create table meta (
    version integer primary key,
    oldest integer not null,
    made_at timestamptz not null default now()
);
create sequence arrival;
create sequence hinted_at;  -- when a caller's transaction has sent a hint, in milliseconds: see send_hints.sql

create table jobs (
    wake bigint not null default 0,
    due bigint not null default 0,
    seq bigint not null default 0,
    stored bigint not null default 0,
    priority integer not null default 0,
    state smallint not null,
    id text collate "C" primary key,
    queue text collate "C" not null,
    attempts integer,
    max_attempts integer,
    deliveries integer,
    lost integer,
    group_limit integer,
    created_at bigint,
    type text collate "C",
    payload bytea,
    token text collate "C",
    worker text collate "C",
    run_at bigint,
    timeout bigint,
    key bytea,
    grp text collate "C",
    depends_on text[] collate "C",
    flow_id text collate "C",
    handed_to text collate "C",
    metadata text,
    last_error text,
    failed_at bigint,
    reason text,
    finished_at bigint,
    result bytea,
    open integer,
    settled text collate "C",
    settled_as smallint,
    began_at bigint,
    lost_by text,
    trail bytea,
    error_class text collate "C",
    fingerprint text collate "C",
    note bytea,
    edits integer,
    keep_for bigint,
    memos boolean
) with (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05
);
-- What reserve scans: only jobs that may run now. Scheduled, blocked, running and finished jobs are not in its way.
create index jobs_line on jobs (queue, priority desc, due, seq) where state in (2, 4) and grp is null;
create index jobs_group_line on jobs (queue, grp, due, seq) where state in (2, 4) and grp is not null;
-- What a reserve promotes into the line: by its run_at, and by the end of its lease. Grouped jobs that no reserve has
-- counted have a wake of 0: among them the oldest comes first.
create index jobs_calendar on jobs (queue, wake, due, seq) where state = 1;
create index jobs_leases on jobs (queue, wake) where state = 3;
-- Leases that had ended for a faster clock, for `release`.
create index jobs_over on jobs (worker) where state = 4;
create index jobs_flow on jobs (flow_id, id) where flow_id is not null;
create index jobs_strange on jobs (id) where state < 0 or state > 4;
-- For listings and counts: plain jobs are not in it on their way from enqueue to done.
create index jobs_blocked on jobs (queue, id) where state = 0;

create table history (like jobs including defaults);
alter table history add primary key (id);
alter table history set (autovacuum_vacuum_insert_scale_factor = 0.2);
-- Flows: those that a dead job holds, their jobs. Expressions in the indexes of this table are those of the statements:
-- the planner can choose no other index for them, whatever its statistics say.
create index history_held on history (coalesce(flow_id, '')) where state + 0 = 6;
create index history_flow on history (flow_id, id) where flow_id is not null;
-- For listings: plain jobs are in none of these on their way from enqueue to done.
create index history_dead on history (queue, id) where state = 6;
create index history_dead_ids on history (id) where state = 6;
create index history_cancelled on history (id) where state = 7;
create index history_strange on history (id) where state < 5 or state > 7;
create index history_cancelled_flow on history (coalesce(flow_id, '')) where state + 0 = 7 and flow_id is not null;
-- For counts and names of queues.
create index history_queue on history (queue, state);
-- What a prune scans: first what has a keep_for, then the rest, each by the moment at which it ends. No value of a damaged
-- record may overflow in an index.
create index history_ends on history
    (num_nulls(keep_for), (finished_at + coalesce(least(greatest(keep_for, 0), 315360000000000), 0)), id)
    where state in (5, 7);

-- An idempotency key lives as long as its record, in either table.
create table keys (
    queue text collate "C" not null,
    key bytea not null,
    id text collate "C" not null,
    primary key (queue, key)
);

-- `dependent` names `dependency` in its depends_on, and both are stored.
create table edges (
    dependency text collate "C" not null,
    dependent text collate "C" not null,
    primary key (dependency, dependent)
);
create index edges_dependent on edges (dependent);

-- What the steps of a job returned.
create table steps (
    id text collate "C" not null,
    name text collate "C" not null,
    at bigint not null,
    execution integer not null,
    value bytea not null,
    primary key (id, name)
);

-- Only the calls of workers touch the row of a group; enqueue does not, so an open transaction holds up no group.
create table groups (
    queue text collate "C" not null,
    grp text collate "C" not null,
    lim integer not null default 1,
    inflight integer not null default 0,
    waiting integer not null default 0,
    served bigint not null default 0,
    primary key (queue, grp)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
create index groups_turns on groups (queue, served) where waiting > 0 and inflight < lim;
create index groups_idle on groups (queue, grp) where waiting = 0 and inflight = 0;

create table group_limits (
    queue text collate "C" not null,
    grp text collate "C" not null,
    lim integer not null,
    applied boolean not null default false,
    primary key (queue, grp)
);
create index group_limits_news on group_limits (queue) where not applied;

create table queues (
    queue text collate "C" primary key,
    paused boolean not null default false,
    served bigint not null default 0,
    groups_next boolean not null default true
) with (fillfactor = 50);

-- Jobs whose dependents are still to be cancelled, or brought back, with them: see follow.
create table followed (id text collate "C" primary key);

-- Cancelled flows, as long as they have a record.
create table flows (flow_id text collate "C" primary key);

-- After which record the next prune starts, of those with a keep_for (nulls = 0) and without (1).
create table prune_place (
    nulls integer primary key,
    ends bigint not null,
    id text collate "C" not null
);

create table workers (
    worker text collate "C" primary key,
    seen_at bigint not null,
    info text not null
);

-- Processes that wait for a hint. Unlogged: after a crash of the server none does. A living one renews its row every
-- minute.
create unlogged table waiting (
    queue text collate "C" not null,
    waiter text collate "C" not null,
    said_at timestamptz not null default now(),
    primary key (queue, waiter)
);

-- What happened in which minute (microseconds since 1970), by queue and name.
create table figures (
    minute bigint not null,
    queue text collate "C" not null,
    name text collate "C" not null,
    n bigint not null,
    primary key (minute, queue, name)
);
create index figures_queue on figures (queue, minute);

-- Who did what, for 90 days.
create table audit (
    id text collate "C" primary key,
    at bigint not null,  -- microseconds since 1970
    done_by text collate "C" not null,
    data bytea not null
);
create index audit_at on audit (at, id);

-- Schedules: from `next_at` on (microseconds since 1970) one is due. `revision` differs with each version of a row; a row
-- whose revision is empty stands for none, and only inside a call of change_schedules.
-- Beside one row every index looks alike to a planner, which may then search a whole one for a name. The two that are not
-- for that hold an expression, and only the statements that are meant for them use it.
create table schedules (
    name text collate "C" primary key,
    queue text collate "C" not null,
    revision text collate "C" not null,
    next_at bigint,
    body bytea not null
);
create index schedules_due on schedules (queue, next_at, (name || ''));
create index schedules_queue on schedules (queue, (name || ''));

create view records as select * from jobs union all select * from history;
