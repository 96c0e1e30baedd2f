-- The row that says where the next scans of the driver may start.
create or replace function scan_start(p_scan jsonb)
returns reserved_job language plpgsql immutable as $body$
declare
    made reserved_job;
begin
    made.scan_from := p_scan::text;
    return made;
end
$body$;
