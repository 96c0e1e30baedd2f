-- A row without an id: where the next scans of the driver may start.
create or replace function scan_start(p_scan jsonb)
returns reserved_job language plpgsql immutable as $body$
declare
    made reserved_job;
begin
    made.token := p_scan::text;
    return made;
end
$body$;
