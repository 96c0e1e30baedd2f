-- A reserved job as the reserve functions return it. `rare` holds the fields that few jobs have: see rare_columns.
-- The last row of a reply may have nothing but `scan_from`: see scan_start.
create type reserved_job as (
    id text collate "C",
    queue text collate "C",
    type text collate "C",
    payload bytea,
    run_at bigint,
    timeout bigint,
    priority integer,
    attempts integer,
    max_attempts integer,
    deliveries integer,
    lost integer,
    created_at bigint,
    rare text,
    scan_from text,
    token text collate "C"
);
