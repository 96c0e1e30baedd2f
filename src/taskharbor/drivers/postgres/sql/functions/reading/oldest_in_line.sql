-- Since when the oldest job of a queue waits that stands in line and is ready, and how many priorities and groups were looked
-- at for it: one lookup for each, up to p_looks of both. Of a line p_looks entries are looked at.
create or replace function oldest_in_line(p_queue text, p_now bigint, p_looks integer)
returns table (levels bigint, names bigint, since bigint) language sql stable as $body$
    with recursive level(priority) as (
        (select j.priority from jobs j where j.queue = p_queue and j.state in (@queued@, @expired@) and j.grp is null
         order by j.priority desc limit 1)
        union all
        select (select j.priority from jobs j where j.queue = p_queue and j.state in (@queued@, @expired@)
                and j.grp is null and j.priority < l.priority order by j.priority desc limit 1)
        from level l where l.priority is not null
    ), name(grp) as (
        (select j.grp from jobs j where j.queue = p_queue and j.state in (@queued@, @expired@) and j.grp is not null
         order by j.grp limit 1)
        union all
        select (select j.grp from jobs j where j.queue = p_queue and j.state in (@queued@, @expired@)
                and j.grp is not null and j.grp > n.grp order by j.grp limit 1)
        from name n where n.grp is not null
    ), firsts(kind, since) as (
        -- What a faster clock has brought into the line is due later: it stands behind what is due.
        (select 1, (select x.due from (select j.due, j.wake from jobs j where j.queue = p_queue
                    and j.state in (@queued@, @expired@) and j.grp is null and j.priority = l.priority
                    order by j.due, j.seq limit p_looks) as x where x.wake <= p_now limit 1)
         from level l where l.priority is not null limit p_looks)
        union all
        (select 2, (select x.due from (select j.due, j.wake from jobs j where j.queue = p_queue
                    and j.state in (@queued@, @expired@) and j.grp = n.grp
                    order by j.due, j.seq limit p_looks) as x where x.wake <= p_now limit 1)
         from name n where n.grp is not null limit p_looks)
    )
    select count(*) filter (where f.kind = 1), count(*) filter (where f.kind = 2), min(f.since) from firsts f;
$body$;
