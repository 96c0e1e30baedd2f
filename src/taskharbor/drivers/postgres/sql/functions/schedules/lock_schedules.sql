-- Lock the schedules of a call in the order of their names, whatever the order of its changes: so calls never deadlock.
-- A name that no schedule has gets a row with an empty revision, which stands for none: of two calls that add the same
-- schedule at the same moment, the second waits here, and then finds what the first has stored.
-- in: as p_changes of change_schedules; out: whether there are rows that stand for none
create or replace function lock_schedules(p_changes text)
returns boolean language plpgsql as $body$
begin
    -- The condition is false, and a row that is there is locked all the same.
    insert into schedules as s (name, queue, revision, body)
    select distinct g.name collate "C", '', '', ''::bytea from json_to_recordset(p_changes::json) as g(name text) order by 1
    on conflict (name) do update set revision = s.revision where false;
    return found;
end
$body$;
