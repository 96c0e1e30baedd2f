-- How many jobs of each queue are in which state: at most p_cap entries of an index are read for each of both.
-- out: (queue, state, n), where n may be above p_cap if jobs of one state are in several indexes
-- Indexes tell nearly all of it: who is scheduled becomes ready at its `wake`, and who is in the line is ready. But not
-- one whose place in it, `due`, is still ahead: that a clock which is faster than p_now may have brought there, and only
-- its record tells its state. These are looked for if the line is no longer than p_cap.
create or replace function count_jobs(p_now bigint, p_cap bigint)
returns table (queue text, state text, n bigint) language plpgsql stable @ours@ @one_plan@ set enable_bitmapscan = off as $body$
#variable_conflict use_column
begin
    return query
        select q.queue, x.reads, sum(x.n)::bigint
        from queue_names() as q(queue), lateral (
            with lines as materialized (
                select (select count(*) from (select from jobs j where j.queue = q.queue collate "C"
                        and j.state in (@queued@, @expired@) and j.grp is null limit p_cap) as y) as ungrouped,
                       (select count(*) from (select from jobs j where j.queue = q.queue collate "C"
                        and j.state in (@queued@, @expired@) and j.grp is not null limit p_cap) as y) as grouped
            ), early as (
                select state_of(j.state, j.run_at, j.wake, p_now) as reads from lines l, lateral (
                    (select * from jobs x where x.queue = q.queue collate "C" and x.state in (@queued@, @expired@)
                     and x.grp is null and x.due > p_now and l.ungrouped < p_cap)
                    union all
                    (select * from jobs x where x.queue = q.queue collate "C" and x.state in (@queued@, @expired@)
                     and x.grp is not null and x.due > p_now and l.grouped < p_cap)) as j
            )
            select 'ready' as reads, l.ungrouped + l.grouped as n from lines l
            union all
            select unnest(array[e.reads, 'ready']), unnest(array[1, -1]) from early e
            union all
            select 'ready', count(*) from (select from jobs j where j.queue = q.queue collate "C"
                                           and j.state = @scheduled@ and j.wake <= p_now limit p_cap) as y
            union all
            select 'scheduled', count(*) from (select from jobs j where j.queue = q.queue collate "C"
                                               and j.state = @scheduled@ and j.wake > p_now limit p_cap) as y
            union all
            select 'ready', count(*) from (select from jobs j where j.queue = q.queue collate "C"
                                           and j.state = @leased@ and j.wake <= p_now limit p_cap) as y
            union all
            select 'inflight', count(*) from (select from jobs j where j.queue = q.queue collate "C"
                                              and j.state = @leased@ and j.wake > p_now limit p_cap) as y
            union all
            select 'blocked', count(*) from (select from jobs j where j.queue = q.queue collate "C"
                                             and j.state = @blocked@ limit p_cap) as y
            union all
            select f.reads, y.n from unnest(array[@done@, @dead@, @cancelled@]::smallint[],
                                            array['done', 'dlq', 'cancelled']) as f(state, reads), lateral (
                -- `between` keeps the planner from partial indexes by id, which it may take for small.
                select count(*) as n from (select from history h where h.queue = q.queue collate "C"
                                           and h.state between f.state and f.state limit p_cap) as z) as y
        ) as x group by 1, 2 having sum(x.n) > 0
        union all
        select j.queue, state_of(j.state, j.run_at, j.wake, p_now), count(*) from jobs j
        where j.state < @blocked@ or j.state > @expired@ group by 1, 2
        union all
        select h.queue, state_of(h.state, h.run_at, h.wake, p_now), count(*) from history h
        where h.state < @done@ or h.state > @cancelled@ group by 1, 2;
end
$body$;
