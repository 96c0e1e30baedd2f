-- Mark the limits that were set since the last reserve. out: for the groups that exist a change of nothing, so that
-- regroup reads their new limit
create or replace function apply_group_limits(p_queues text[])
returns group_change[] language plpgsql as $body$
declare
    changes group_change[];
begin
    if exists (select from group_limits l where l.queue = any(p_queues) and not l.applied) then
        with news as (
            update group_limits l set applied = true
            where (l.queue, l.grp) in (select x.queue, x.grp from group_limits x where x.queue = any(p_queues)
                                       and not x.applied order by x.queue, x.grp limit 1000 for update skip locked)
            returning l.queue, l.grp
        )
        select array_agg(row(n.queue, n.grp, 0, 0)::group_change) into changes
        from news n join groups g on g.queue = n.queue and g.grp = n.grp;
    end if;
    return changes;
end
$body$;
