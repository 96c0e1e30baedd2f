-- A reserved job as the reserve functions return it. `rare` holds the fields that few jobs have: see rare_columns.
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
    token text collate "C"
);
