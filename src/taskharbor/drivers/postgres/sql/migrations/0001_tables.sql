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
-- open         how many dependencies are not done, while it is blocked; else scratch
-- due, seq     its place in the line: when it joined it, then its arrival
-- stored       its arrival when it was enqueued: dependents are released in this order
-- settled      the token of its last outcome, until it is reserved again; settled_as: the kind of that outcome
--
-- The columns that are compared most come first: they are found without decoding the rest of a row.
-- No column except the id has a check: the next reserve moves a damaged record to the dead letter queue, and that is
-- easier to live with than a program that cannot be rolled back.

-- A row for each migration: the number of the schema, and the oldest number whose programs may still use it.
create table meta (version integer not null, oldest integer not null, made_at timestamptz not null default now());
create sequence arrival;

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
    settled_as smallint
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
-- What a reserve promotes into the line: by its run_at, and by the end of its lease.
create index jobs_calendar on jobs (queue, wake) where state = 1;
create index jobs_leases on jobs (queue, wake) where state = 3;
-- Leases that had ended for a faster clock, for `release`.
create index jobs_over on jobs (worker) where state = 4;
create index jobs_flow on jobs (flow_id, id) where flow_id is not null;
create index jobs_strange on jobs (id) where state < 0 or state > 4;

create table history (like jobs including defaults);
alter table history add primary key (id);
alter table history set (autovacuum_vacuum_insert_scale_factor = 0.2);
-- What prune scans, flow by flow, and the flows that a dead job holds. The expressions are those of its statements: the
-- planner can choose no other index for them, whatever its statistics say.
create index history_sweep on history (coalesce(flow_id, ''), finished_at, id) where state in (5, 7);
create index history_held on history (coalesce(flow_id, '')) where state + 0 = 6;
create index history_flow on history (flow_id, id) where flow_id is not null;
create index history_dead on history (queue, id) where state = 6;

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

create table limits (
    queue text collate "C" not null,
    grp text collate "C" not null,
    lim integer not null,
    applied boolean not null default false,
    primary key (queue, grp)
);
create index limits_news on limits (queue) where not applied;

create table queues (
    queue text collate "C" primary key,
    paused boolean not null default false,
    served bigint not null default 0,
    groups_next boolean not null default true
) with (fillfactor = 50);

-- Cancelled flows, as long as they have a record.
create table flows (flow_id text collate "C" primary key);

-- One row: after which record the next prune starts.
create table sweep (
    one boolean primary key default true check (one),
    flow text collate "C" not null,
    finished_at bigint not null,
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

create view records as select * from jobs union all select * from history;
