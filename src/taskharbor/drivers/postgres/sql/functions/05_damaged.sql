-- What another program did to a record that would stop a worker, or null.
create or replace function damage_of(j jobs)
returns text language sql immutable as $body$
    select case when coalesce(j.type, '') = '' then 'type is missing'
                when j.payload is null then 'payload is missing'
                when j.attempts is null then 'attempts is not a number'
                when j.max_attempts is null then 'max_attempts is not a number'
                when j.deliveries is null then 'deliveries is not a number'
                when j.lost is null then 'lost is not a number'
                when j.state not between 0 and 7 then 'unknown state' end;
$body$;

-- Set damaged records aside: to the dead letter queue, with the reason. The caller settles their groups' counters. One
-- that somebody else keeps as it is (an open transaction that depends on it) is left for another time. Answers how many.
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
        select set_finished(gone, 6::smallint, 'damaged record: ' || damage_of(gone), p_now) as x from gone) as y;
    get diagnostics number = row_count;
    return number;
end
$body$;
