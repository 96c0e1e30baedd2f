-- Schema 3: the audit, and schedules. Programs of schemas 1 and 2 go on working beside it: they know nothing of these
-- tables.

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
