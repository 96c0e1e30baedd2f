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

-- Set damaged records aside: to the dead letter queue, with the reason. The caller has settled their groups' counters.
create or replace function set_aside(p_ids text[], p_now bigint)
returns void language plpgsql as $body$
begin
    with gone as (delete from jobs j where j.id = any(p_ids) returning j.*)
    insert into history select (x).* from (
        select set_finished(gone, 6::smallint, 'damaged record: ' || damage_of(gone), p_now) as x from gone) as y;
end
$body$;

-- Records of a state that nobody knows stand in no line: whoever reserves sets them aside.
create or replace function set_strange_aside(p_now bigint)
returns void language plpgsql as $body$
declare
    ids text[] := array(select j.id from jobs j where j.state < 0 or j.state > 4
                        order by j.id limit 1000 for update skip locked);
    held record;
begin
    select array_agg(j.queue) as group_queues, array_agg(j.grp) as group_names into held
    from jobs j where j.id = any(ids) and j.grp is not null and j.token is not null;
    perform set_aside(ids, p_now);
    if held.group_names is not null then
        perform regroup(held.group_queues, held.group_names, array_fill(-1, array[cardinality(held.group_names)]),
                        array_fill(0, array[cardinality(held.group_names)]));
    end if;
end
$body$;
