-- The groups of a queue that may have a job to run, in the order of their turns, and how many more may run in each.
-- in: the queue; what a reserve would bring into line first (see next_in_queue); how many groups
create or replace function groups_in_turn(p_queue text, p_coming jsonb, p_looks integer)
returns table (grp text, room bigint) language sql stable as $body$
    select n.grp, coalesce(l.lim, g.lim, 1)::bigint - coalesce(g.inflight, 0) + n.freed
    from (select x.grp, sum(x.freed) as freed from (
              (select g.grp, 0 as freed from groups g
               where g.queue = p_queue and g.waiting > 0 and g.inflight < g.lim order by g.served limit p_looks)
              union all
              (select u.grp, 0 from group_limits u where u.queue = p_queue and not u.applied limit p_looks)
              union all
              select c.grp, c.freed from jsonb_to_recordset(p_coming) as c(grp text, freed integer)
              where c.grp is not null) as x
          group by x.grp) as n
    left join groups g on g.queue = p_queue and g.grp = n.grp
    left join group_limits l on l.queue = p_queue and l.grp = n.grp
    where coalesce(l.lim, g.lim, 1)::bigint - coalesce(g.inflight, 0) + n.freed > 0
    order by g.served nulls last, n.grp limit p_looks;
$body$;
