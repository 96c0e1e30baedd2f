-- Delete those of these jobs that still end before p_before, and that no unfinished job needs. out: what is deleted
-- locks: the rows of these jobs; what another call has locked is left for the next round
create or replace function delete_ended(p_ids text[], p_nulls integer, p_before bigint)
returns deleted_job[] language plpgsql as $body$
declare
    places tid[] := array(
        select h.ctid from history h
        where h.id = any(p_ids) and h.state + 0 in (@done@, @cancelled@) and num_nulls(h.keep_for) + 0 = p_nulls
          and h.finished_at + coalesce(least(greatest(h.keep_for, 0), 315360000000000), 0) < p_before
        for update skip locked);
    deleted deleted_job[];
begin
    -- A new read, now that no job can be made dependent on them.
    with gone as (
        delete from history h where h.ctid = any(places) and count_dependents(h.id, 1) = 0
        returning row(h.id, h.queue, h.key, h.flow_id)::deleted_job as one
    )
    select coalesce(array_agg(g.one), '{}') into deleted from gone g;
    return deleted;
end
$body$;
