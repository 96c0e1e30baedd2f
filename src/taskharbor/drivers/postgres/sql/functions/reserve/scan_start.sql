-- The row that says where the next scans of the driver may start.
create or replace function scan_start(p_scan jsonb)
returns reserved_job language sql immutable as $body$
    select jsonb_populate_record(null::reserved_job, jsonb_build_object('scan_from', p_scan::text));
$body$;
