-- The earliest moment after p_now at which a job may run that is in the line of a queue already; null if there is none.
-- A reserve with a faster clock has brought it there, or has found its lease over. The place of such a job, `due`, is its
-- moment, so it is behind those that may run: one lookup for each priority of the queue, and one for each of up to a
-- thousand groups.
create or replace function early_in_line(p_queue text, p_now bigint)
returns bigint language plpgsql stable as $body$
begin
    return (
        with recursive levels(priority) as (
            (select j.priority from jobs j where j.queue = p_queue and j.state in (@queued@, @expired@) and j.grp is null
             order by j.priority desc limit 1)
            union all
            select (select j.priority from jobs j where j.queue = p_queue and j.state in (@queued@, @expired@)
                    and j.grp is null and j.priority < l.priority order by j.priority desc limit 1)
            from levels l where l.priority is not null
        ), names(grp) as (
            (select j.grp from jobs j where j.queue = p_queue and j.state in (@queued@, @expired@) and j.grp is not null
             order by j.grp limit 1)
            union all
            select (select j.grp from jobs j where j.queue = p_queue and j.state in (@queued@, @expired@)
                    and j.grp is not null and j.grp > n.grp order by j.grp limit 1)
            from names n where n.grp is not null
        )
        select least(
            (select min(x.wake) from (select l.priority from levels l limit 1000) as p,
                lateral (select j.wake from jobs j where j.queue = p_queue and j.state in (@queued@, @expired@)
                         and j.grp is null and j.priority = p.priority and j.due > p_now) as x where x.wake > p_now),
            (select min(x.wake) from (select n.grp from names n limit 1000) as g,
                lateral (select j.wake from jobs j where j.queue = p_queue and j.state in (@queued@, @expired@)
                         and j.grp = g.grp and j.due > p_now) as x where x.wake > p_now)));
end
$body$;
