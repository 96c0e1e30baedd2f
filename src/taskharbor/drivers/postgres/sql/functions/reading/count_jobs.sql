-- How many jobs of each queue are in which state: at most p_cap entries of an index are read for each of both.
-- out: (queue, state, n), where n may be above p_cap if jobs of one state are in several indexes
-- A job that a reserve with a faster clock has brought into the line is ready there; if the line is longer than p_cap, it
-- may count as ready although it reads scheduled.
create or replace function count_jobs(p_now bigint, p_cap bigint)
returns table (queue text, state text, n bigint) language plpgsql stable @ours@ @one_plan@ set enable_bitmapscan = off as $body$
#variable_conflict use_column
begin
    return query
        select q.queue, x.reads, count(*)
        from queue_names() as q(queue), lateral (
            (select state_of(j.state, j.run_at, j.wake, p_now) as reads from jobs j
             where j.queue = q.queue collate "C" and j.state in (@queued@, @expired@) and j.grp is null limit p_cap)
            union all
            (select state_of(j.state, j.run_at, j.wake, p_now) from jobs j
             where j.queue = q.queue collate "C" and j.state in (@queued@, @expired@) and j.grp is not null limit p_cap)
            union all
            (select state_of(j.state, j.run_at, j.wake, p_now) from jobs j
             where j.queue = q.queue collate "C" and j.state = @scheduled@ and j.wake <= p_now limit p_cap)
            union all
            (select state_of(j.state, j.run_at, j.wake, p_now) from jobs j
             where j.queue = q.queue collate "C" and j.state = @scheduled@ and j.wake > p_now limit p_cap)
            union all
            (select 'ready' from jobs j
             where j.queue = q.queue collate "C" and j.state = @leased@ and j.wake <= p_now limit p_cap)
            union all
            (select 'inflight' from jobs j
             where j.queue = q.queue collate "C" and j.state = @leased@ and j.wake > p_now limit p_cap)
            union all
            (select 'blocked' from jobs j where j.queue = q.queue collate "C" and j.state = @blocked@ limit p_cap)
            union all
            (select f.reads from unnest(array[@done@, @dead@, @cancelled@]::smallint[], array['done', 'dlq', 'cancelled'])
                as f(state, reads), lateral (
                    -- `between` keeps the planner from partial indexes by id, which it may take for small.
                    select from history h where h.queue = q.queue collate "C" and h.state between f.state and f.state
                    limit p_cap) as y)
        ) as x group by 1, 2
        union all
        select j.queue, state_of(j.state, j.run_at, j.wake, p_now), count(*) from jobs j
        where j.state < @blocked@ or j.state > @expired@ group by 1, 2
        union all
        select h.queue, state_of(h.state, h.run_at, h.wake, p_now), count(*) from history h
        where h.state < @done@ or h.state > @cancelled@ group by 1, 2;
end
$body$;
