-- Change schedules, each if it has the revision that its editor read, and store their jobs.
-- in:  p_changes JSON array of o (its position), name, expect, and what takes the schedule's place: revision, queue, next_at,
--                body (base64). expect null: if there is none; revision null: it is deleted. They are made in this order
--      p_jobs    null, or a JSON array with an array for each change: its jobs, as in p_jobs of enqueue
-- out: for each change whether the schedule is now as it says. A change that was made before is not made again
-- locks: the schedules, in the order of names; then what enqueue locks. No other call locks a schedule
create or replace function change_schedules(p_changes text, p_jobs text, p_now bigint)
returns boolean[] language plpgsql @ours@ @one_plan@ set enable_bitmapscan = off as $body$
declare
    one record;
    place tid;
    current_revision text;
    has_empty boolean;  -- whether a row may stand for none
    changed integer[] := '{}';
    results boolean[] := '{}';
begin
    if current_setting('transaction_isolation') <> 'read committed' then perform refuse_isolation(); end if;
    -- In the order of names, whatever the order of the changes: so calls never deadlock. A name that no schedule has gets a
    -- row with an empty revision, which stands for none: of two calls that add the same schedule at the same moment, the
    -- second waits here, and then finds what the first has stored. A row that is there is locked, although `where false`.
    insert into schedules as s (name, queue, revision, body)
    select distinct g.name collate "C", '', '', ''::bytea from json_to_recordset(p_changes::json) as g(name text) order by 1
    on conflict (name) do update set revision = s.revision where false;
    has_empty := found;
    for one in
        select * from json_to_recordset(p_changes::json) as g(
            o integer, name text, expect text, revision text, queue text, next_at bigint, body text)
        order by g.o
    loop
        select s.ctid, nullif(s.revision, '') into place, current_revision from schedules s where s.name = one.name;
        if (current_revision is null and one.revision is null) or current_revision = one.revision then
            results := results || true;
        elsif current_revision is distinct from one.expect then
            results := results || false;
        else
            update schedules s
            set revision = coalesce(one.revision, ''), queue = coalesce(one.queue, ''), next_at = one.next_at,
                body = decode(coalesce(one.body, ''), 'base64')
            where s.ctid = place;
            has_empty := has_empty or one.revision is null;
            changed := changed || one.o;
            results := results || true;
        end if;
    end loop;
    if p_jobs is not null and changed <> '{}' then
        perform store_scheduled(p_jobs, changed, p_now);
    end if;
    if has_empty then
        delete from schedules s
        where s.name = any(array(select g.name from json_to_recordset(p_changes::json) as g(name text)))
          and s.revision = '';
    end if;
    return results;
end
$body$;
