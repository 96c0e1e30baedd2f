-- Apply changes to the counters of groups, and take over the limits that were set for them.
-- locks: the rows of these groups, in the order of their names, so that two calls never deadlock
create or replace function regroup(p_changes group_change[])
returns void language plpgsql as $body$
begin
    insert into groups as g (queue, grp, lim, inflight, waiting, served)
    select x.queue, x.grp,
           coalesce((select l.lim from group_limits l where l.queue = x.queue and l.grp = x.grp), 1),
           sum(x.inflight), sum(x.waiting), nextval('arrival')
    from unnest(p_changes) as x
    group by x.queue, x.grp
    order by x.queue, x.grp
    on conflict (queue, grp) do update
    set inflight = least(greatest(g.inflight::bigint + excluded.inflight, 0), 2147483647),
        waiting = least(greatest(g.waiting::bigint + excluded.waiting, 0), 2147483647),
        lim = excluded.lim;
end
$body$;
