-- Delete up to p_limit jobs of one queue, state and flow, from a place on, the oldest first.
-- in:  p_here: queue, state and flow ('' for jobs of no flow), and the last job that was checked; p_before: the retention
-- out: here: the last job that was checked now; number: how many were checked; is_over: no more jobs of this flow;
--      deleted: those that were deleted. The others are needed by a job that is unfinished, or locked by another call
create or replace function prune_flow(p_here prune_place, p_before bigint, p_limit integer,
                                      out here prune_place, out number integer, out is_over boolean, out deleted deleted_job[])
language plpgsql as $body$
declare
    ids text[];
    moments bigint[];
    places tid[];
begin
    here := p_here;
    deleted := '{}';
    select coalesce(array_agg(x.id), '{}'), array_agg(x.finished_at) into ids, moments
    from (select h.id, h.finished_at from history h
          where h.keep_for is null and h.queue = p_here.queue collate "C" and h.state = p_here.state
            and coalesce(h.flow_id, '') = p_here.flow collate "C"
            and h.finished_at < p_before and (h.finished_at, h.id) > (p_here.finished_at, p_here.id collate "C")
          order by h.finished_at, h.id limit p_limit) as x;
    number := cardinality(ids);
    is_over := number < p_limit;
    if number > 0 then
        places := array(select h.ctid from history h where h.id = any(ids) and h.state + 0 in (@done@, @cancelled@)
                        and h.finished_at < p_before for update skip locked);
        -- A new read, now that no job can be made dependent on them.
        with gone as (
            delete from history h where h.ctid = any(places) and count_dependents(h.id, 1) = 0
            returning row(h.id, h.queue, h.key, h.flow_id)::deleted_job as one
        )
        select coalesce(array_agg(g.one), '{}') into deleted from gone g;
        here.finished_at := moments[number];
        here.id := ids[number];
    end if;
end
$body$;
