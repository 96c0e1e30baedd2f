-- Schema 3: the audit. Programs of schemas 1 and 2 go on working beside it: they know nothing of this table.

-- Who did what, for 90 days. Ids and names are bytes in UTF-8: whatever another program writes there can be read.
CREATE TABLE taskharbor_audit (
    id      BLOB NOT NULL PRIMARY KEY,
    at      INTEGER NOT NULL,  -- microseconds since 1970
    done_by BLOB NOT NULL,
    data    BLOB NOT NULL
);
CREATE INDEX taskharbor_audit_at ON taskharbor_audit (at, id);
