-- Delete up to p_limit done and cancelled jobs, those with a keep_for (p_nulls = 0) or without one (1), that end before
-- p_before: the first to end first. out: how many
-- What an unfinished job needs, and what is in a flow that an unfinished or dead job holds, is held back. It stays in the
-- index, so a call checks at most 5,000 such jobs; the next one starts where it stopped (the table `prune_place`), and
-- wraps around at the end. Where nothing has ended, that is a lookup or two.
-- locks: what it deletes, and the row of `prune_place`; what another call has locked is left for the next round
create or replace function prune_ended(p_nulls integer, p_before bigint, p_limit integer)
returns integer language plpgsql as $body$
declare
    beginning constant prune_place := (p_nulls, '-9223372036854775808'::bigint, '');
    place prune_place;
    is_ours boolean;
    is_last boolean;  -- whether this is the last way through the index
    size integer;
    checks integer := 5000;  -- left for jobs that are held back
    ids text[];
    moments bigint[];
    flows text[];
    held text[];
    gone deleted_job[];
    number integer := 0;
begin
    select s.* into place from prune_place s where s.nulls = p_nulls for update skip locked;
    is_ours := found;
    if not is_ours then  -- this is the first call of all, or another one has the row locked
        place := beginning;
    end if;
    is_last := place = beginning;
    loop
        size := least(p_limit - number, checks, 500);
        exit when size < 1;
        select coalesce(array_agg(x.id), '{}'), array_agg(x.ends), array_agg(x.flow_id) into ids, moments, flows
        from (select h.id, h.flow_id,
                     h.finished_at + coalesce(least(greatest(h.keep_for, 0), 315360000000000), 0) as ends from history h
              where h.state in (@done@, @cancelled@) and num_nulls(h.keep_for) = p_nulls
                and h.finished_at + coalesce(least(greatest(h.keep_for, 0), 315360000000000), 0) < p_before
                and (h.finished_at + coalesce(least(greatest(h.keep_for, 0), 315360000000000), 0), h.id)
                    > (place.ends, place.id collate "C")
              order by h.finished_at + coalesce(least(greatest(h.keep_for, 0), 315360000000000), 0), h.id
              limit size) as x;
        -- `offset 0`: each flow is asked once, not each job.
        held := array(select f.flow from (select distinct u from unnest(flows) as u offset 0) as f(flow)
                      where is_held(f.flow));
        gone := delete_ended(array(select u.id from unnest(ids, flows) as u(id, flow)
                                   where u.flow is null or u.flow <> all(held)), p_nulls, p_before);
        perform forget(gone);
        number := number + cardinality(gone);
        checks := checks - cardinality(ids) + cardinality(gone);
        if cardinality(ids) = size then
            place.ends := moments[size];
            place.id := ids[size];
        else
            place := beginning;
            exit when is_last;
            is_last := true;
        end if;
    end loop;
    if is_ours then
        update prune_place s set ends = place.ends, id = place.id where s.nulls = p_nulls and s <> place;
    elsif place <> beginning then
        insert into prune_place values (place.*) on conflict do nothing;
    end if;
    return number;
end
$body$;
