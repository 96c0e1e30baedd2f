-- Records in an unknown state are in no line: any reserve moves them to the dead letter queue.
-- out: the changes for the groups of those that were under a lease
create or replace function set_unknown_states_aside(p_now bigint)
returns group_change[] language plpgsql as $body$
declare
    ids text[] := array(select j.id from jobs j where j.state < @blocked@ or j.state > @expired@
                        limit 1000 for update skip locked);
    changes group_change[];
begin
    if ids <> '{}' then
        select array_agg(row(j.queue, j.grp, -1, 0)::group_change) into changes
        from jobs j where j.id = any(ids) and j.grp is not null and j.token is not null;
        perform set_aside(ids, p_now);
    end if;
    return changes;
end
$body$;
