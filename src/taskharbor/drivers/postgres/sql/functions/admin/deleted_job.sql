-- What is left of a record that was deleted, for forget.
create type deleted_job as (id text collate "C", queue text collate "C", key bytea, flow_id text collate "C");
