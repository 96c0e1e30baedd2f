"""The tables. `jobs` has a column for each field of a record that this driver keeps, and the few that are the store's:

    num           the number of the row, never used again: an edge means this row, and not the next one with its id
    state         blocked, ready, inflight, done, dlq or cancelled. `scheduled` is not stored: it depends on `now`
    runnable_at   ready: its `run_at`; inflight: the end of its lease; 0: at once
    position      where it stands among the ungrouped jobs of its queue (the negative priority); 0 in a group
    due_at        since when it is due, or will be
    arrival       decides between jobs that are due since the same moment
    token, worker of its lease
    settled       kind and token of its last outcome: the same outcome again is a repetition

Moments and durations are whole microseconds. `arrived` of a queue is the number of the last event after which a
reserve may find more than before; `turn` columns hold the number of the last turn.

Until your first release you may change these statements. Afterwards a store of an older version exists somewhere: then
keep a table with the number of the schema, and a file of statements for each step.
"""

from __future__ import annotations

SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    num INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    queue TEXT NOT NULL,
    state TEXT,
    runnable_at INTEGER NOT NULL DEFAULT 0,
    position INTEGER NOT NULL DEFAULT 0,
    due_at INTEGER NOT NULL DEFAULT 0,
    arrival INTEGER NOT NULL DEFAULT 0,
    token TEXT,
    worker TEXT NOT NULL DEFAULT '',
    settled TEXT,
    type TEXT,
    payload BLOB,
    run_at INTEGER,
    timeout INTEGER,
    priority INTEGER,
    attempts INTEGER,
    max_attempts INTEGER,
    deliveries INTEGER,
    lost INTEGER,
    idempotency_key TEXT,
    grp TEXT,
    group_limit INTEGER,
    depends_on TEXT,
    flow_id TEXT,
    handed_to TEXT,
    metadata TEXT,
    last_error TEXT,
    failed_at INTEGER,
    reason TEXT,
    created_at INTEGER,
    finished_at INTEGER,
    result BLOB
);
CREATE INDEX IF NOT EXISTS jobs_by_order ON jobs (queue, grp, position, due_at, arrival)
    WHERE state IN ('ready', 'inflight');
CREATE INDEX IF NOT EXISTS jobs_by_key ON jobs (queue, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX IF NOT EXISTS jobs_by_flow ON jobs (flow_id, id) WHERE flow_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS jobs_by_worker ON jobs (worker) WHERE worker <> '';
CREATE INDEX IF NOT EXISTS jobs_by_state ON jobs (queue, state);
CREATE INDEX IF NOT EXISTS jobs_by_end ON jobs (finished_at) WHERE state IN ('done', 'cancelled');

CREATE TABLE IF NOT EXISTS edges (
    job INTEGER NOT NULL,
    dependency INTEGER NOT NULL,
    place INTEGER NOT NULL,
    PRIMARY KEY (job, dependency)
);
CREATE INDEX IF NOT EXISTS edges_by_dependency ON edges (dependency);

CREATE TABLE IF NOT EXISTS queues (
    name TEXT PRIMARY KEY,
    paused INTEGER NOT NULL DEFAULT 0,
    arrived INTEGER NOT NULL DEFAULT 0,
    turn INTEGER NOT NULL DEFAULT 0,
    groups_turn INTEGER NOT NULL DEFAULT 0,
    ungrouped_turn INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS groups (
    queue TEXT NOT NULL,
    name TEXT NOT NULL,
    capacity INTEGER NOT NULL DEFAULT 0,
    turn INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, name)
);
CREATE TABLE IF NOT EXISTS cancelled_flows (flow_id TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS workers (worker TEXT PRIMARY KEY, seen_at INTEGER NOT NULL, info TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS counter (number INTEGER NOT NULL);
INSERT INTO counter SELECT 0 WHERE NOT EXISTS (SELECT * FROM counter);
"""
