-- Delete up to p_limit done and cancelled jobs with a keep_for that ends before p_kept_before, the first to end first.
-- out: how many
-- A call checks at most 1,000 of them. What is held back stays in the index, so the next call starts behind the last one
-- that was checked (the table `kept_place`), and at the beginning again once all were checked.
-- locks: what it deletes, and the row of `kept_place`; what another call has locked is left for the next round
create or replace function prune_kept(p_kept_before bigint, p_limit integer)
returns integer language plpgsql as $body$
declare
    checks constant integer := least(p_limit, 1000);
    here kept_place;
    ids text[];
    moments bigint[];
    places tid[];
    deleted deleted_job[];
begin
    select s.* into here from kept_place s for update skip locked;
    select coalesce(array_agg(x.id), '{}'), array_agg(x.ends) into ids, moments
    from (select h.id, h.finished_at + least(greatest(h.keep_for, 0), 315360000000000) as ends from history h
          where h.state in (@done@, @cancelled@) and h.keep_for is not null
            and h.finished_at + least(greatest(h.keep_for, 0), 315360000000000) < p_kept_before
            and (h.finished_at + least(greatest(h.keep_for, 0), 315360000000000), h.id)
                > (coalesce(here.ends, '-9223372036854775808'::bigint), coalesce(here.id, '') collate "C")
          order by h.finished_at + least(greatest(h.keep_for, 0), 315360000000000), h.id limit checks) as x;
    if checks < 1 or ids = '{}' and here.one is null then
        return 0;
    end if;
    places := array(select h.ctid from history h where h.id = any(ids) and h.state + 0 in (@done@, @cancelled@)
                    for update skip locked);
    -- A new read, now that no job can be made dependent on them.
    with gone as (
        delete from history h where h.ctid = any(places) and count_dependents(h.id, 1) = 0
                                and (h.flow_id is null or not is_held(h.flow_id))
        returning row(h.id, h.queue, h.key, h.flow_id)::deleted_job as one
    )
    select coalesce(array_agg(g.one), '{}') into deleted from gone g;
    perform forget(deleted);
    if cardinality(ids) < checks then
        delete from kept_place s where s.one = here.one;
    elsif here.one then
        update kept_place s set ends = moments[checks], id = ids[checks];
    elsif cardinality(deleted) < checks then
        insert into kept_place (ends, id) values (moments[checks], ids[checks]) on conflict do nothing;
    end if;
    return cardinality(deleted);
end
$body$;
