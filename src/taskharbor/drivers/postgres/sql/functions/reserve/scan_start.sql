-- The row, without an id, that tells the driver where its next scans may start.
create or replace function scan_start(p_scan jsonb)
returns reserved_job language plpgsql immutable as $body$
declare
    made reserved_job;
begin
    made.token := p_scan::text;
    return made;
end
$body$;
