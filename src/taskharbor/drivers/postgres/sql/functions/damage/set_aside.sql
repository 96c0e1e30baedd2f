-- Move damaged records to the dead letter queue, with the reason. The caller adjusts the counters of their groups.
-- A record that another transaction has locked (one that depends on it) is left for a later call.
-- out: how many were moved
create or replace function set_aside(p_ids text[], p_now bigint)
returns integer language plpgsql as $body$
declare
    number integer;
begin
    with gone as (
        delete from jobs j where j.ctid = any(array(
            select x.ctid from jobs x where x.id = any(p_ids) for update skip locked))
        returning j.*
    )
    insert into history select (x).* from (
        select set_finished(gone, @dead@::smallint, 'damaged record: ' || damage_of(gone), p_now) as x from gone) as y;
    get diagnostics number = row_count;
    return number;
end
$body$;
