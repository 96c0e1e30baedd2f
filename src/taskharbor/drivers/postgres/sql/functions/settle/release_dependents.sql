-- Jobs are done: count them off at their dependents. A dependent with no open dependency left joins the line.
-- in: the ids of the done jobs, their positions in the batch, the time, the first sequence number
-- out: for each released job the position of the ack that released it; the queues
create or replace function release_dependents(p_done text[], p_positions integer[], p_now bigint, p_base bigint,
                                              out positions integer[], out queues text[])
language plpgsql as $body$
declare
    dependents text[];
    counts integer[];
    places integer[];
begin
    positions := '{}';
    select array_agg(x.dependent), array_agg(x.n), array_agg(x.o) into dependents, counts, places
    from (select e.dependent, count(*)::integer as n, max(a.o) as o
          from unnest(p_done, p_positions) as a(id, o) join edges e on e.dependency = a.id collate "C"
          group by e.dependent) as x;
    if dependents is null then
        return;
    end if;
    perform from jobs j where j.id = any(dependents) and j.state = @blocked@ order by j.id for no key update;
    with fewer as (
        update jobs j set open = greatest(coalesce(j.open, 0)::bigint - x.n, -1)  -- whatever a damaged record holds
        from unnest(dependents, counts, places) as x(id, n, o)
        where j.id = x.id collate "C" and j.state = @blocked@
        returning j.id, j.open, j.stored, x.o
    ), free as (
        select f.id, f.o, row_number() over (order by f.o, f.stored) as k from fewer f where f.open <= 0
    )
    select array_agg(free.id order by free.k), array_agg(free.o order by free.k) into dependents, places from free;
    if dependents is null then
        return;
    end if;
    with up as (
        update jobs j
        set state = first_state(j.grp, j.run_at, p_now),
            wake = coalesce(j.run_at, 0), due = greatest(coalesce(j.run_at, 0), p_now), seq = p_base + x.o + x.k
        from unnest(dependents, places) with ordinality as x(id, o, k)
        where j.id = x.id collate "C"
        returning j.queue
    )
    select array_agg(distinct up.queue) into queues from up;
    positions := places;
end
$body$;
