-- What a reserve looks for before it hands a record out, in every row: what would stop a statement of ours, and numbers
-- that nobody can have stored. What few records have (a key, dependencies, metadata, …) the driver looks at, and sets the
-- record aside by set_broken.
create or replace function is_sound(j jobs)
returns boolean language sql immutable as $body$
    select j.type <> '' and j.payload is not null and j.attempts >= 0 and j.max_attempts >= 0
           and j.deliveries >= 0 and j.deliveries < 2147483647 and j.lost >= 0 and j.lost < 2147483647
           and j.created_at >= 0 and j.created_at <= 253402300799999999
           and (j.run_at is null or j.run_at >= 0 and j.run_at <= 253402300799999999)
           and (j.timeout is null or j.timeout >= 1000 and j.timeout <= 2147483647000);
$body$;

-- What another program did to a record that would stop a worker, or null.
create or replace function damage_of(j jobs)
returns text language sql immutable as $body$
    select case when coalesce(j.type, '') = '' then 'type is missing'
                when j.payload is null then 'payload is missing'
                when (j.attempts >= 0) is not true then 'attempts is not a number'
                when (j.max_attempts >= 0) is not true then 'max_attempts is not a number'
                when (j.deliveries >= 0 and j.deliveries < 2147483647) is not true then 'deliveries is not a number'
                when (j.lost >= 0 and j.lost < 2147483647) is not true then 'lost is not a number'
                when (j.created_at between 0 and 253402300799999999) is not true then 'created_at is not a moment'
                when j.run_at not between 0 and 253402300799999999 then 'run_at is not a moment'
                when j.timeout not between 1000 and 2147483647000 then 'timeout is out of bounds'
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

-- Set records aside that were handed out and turned out to be damaged.
-- in: JSON array of id, token, reason; p_now; out: nothing: whoever has taken one since has to decide over it
create or replace function set_broken(p_given text, p_now bigint)
returns void language plpgsql
set search_path = @schema@, pg_temp set enable_seqscan = off set jit = off as $body$
declare
    one record;
    j jobs;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation();
    end if;
    for one in
        select g.id, g.token, g.reason from json_to_recordset(p_given::json) as g(id text, token text, reason text)
    loop
        perform from jobs x where x.id = one.id and x.token = one.token for update skip locked;
        continue when not found;
        delete from jobs x where x.id = one.id returning x.* into j;
        if j.grp is not null then
            perform regroup(array[j.queue], array[j.grp], array[case when j.state = 3 then -1 else 0 end],
                            array[case when j.state = 4 then -1 else 0 end]);
            perform hint(array[j.queue], false);
        end if;
        j := set_finished(j, 6::smallint, 'damaged record: ' || one.reason, p_now);
        insert into history select (j).*;
    end loop;
end
$body$;
