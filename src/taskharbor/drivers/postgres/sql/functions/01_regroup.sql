-- Move the counters of groups, and take over the limits that were set for them.
-- in: for each change a queue, a group, and what is added to its inflight and its waiting members
-- locks: the rows of these groups, in the order of their names, so that two calls never wait for each other
create or replace function regroup(p_queues text[], p_groups text[], p_inflight integer[], p_waiting integer[])
returns void language plpgsql as $body$
begin
    insert into groups as g (queue, grp, lim, inflight, waiting, served)
    select x.queue, x.grp,
           coalesce((select l.lim from limits l where l.queue = x.queue collate "C" and l.grp = x.grp collate "C"), 1),
           sum(x.inflight), sum(x.waiting), nextval('arrival')
    from unnest(p_queues, p_groups, p_inflight, p_waiting) as x(queue, grp, inflight, waiting)
    group by x.queue, x.grp
    order by x.queue collate "C", x.grp collate "C"
    on conflict (queue, grp) do update
    set inflight = least(greatest(g.inflight::bigint + excluded.inflight, 0), 2147483647),
        waiting = least(greatest(g.waiting::bigint + excluded.waiting, 0), 2147483647),
        lim = excluded.lim;
end
$body$;
