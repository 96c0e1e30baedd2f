-- A page of a listing of flows, in the order of their ids, each with its status and the created_at of its first and its
-- last job.
-- in:  p_after: null, or the flow behind which the page begins; p_newest: whether the last id comes first; p_status, p_since,
--      p_until: null, or what is asked for; p_limit; p_most: how many flows are looked at
-- out: a row for each flow; then, if there may be more, one with `last`: the flow behind which the next page begins
-- The next flow is one lookup in each of two indexes, and so is all that is read of it, whatever its size.
create or replace function list_flows(p_after text, p_newest boolean, p_status text, p_since bigint, p_until bigint,
                                      p_limit integer, p_most integer)
returns table (id text, status text, created_at bigint, updated_at bigint, last text) language plpgsql stable
@ours@ @one_plan@ @in_index_order@ @nested_loops@ as $body$
#variable_conflict use_column
declare
    here text := p_after;
    shown text;
    damaged text[] := array(
        select j.flow_id from jobs j where (j.state < @blocked@ or j.state > @expired@)
        and j.state not in (@done@, @cancelled@) union all
        select h.flow_id from history h where (h.state < @done@ or h.state > @cancelled@)
        and h.state not between @blocked@ and @expired@);
    found_status text;
    made bigint[];
    number integer := 0;
begin
    for turn in 1..p_most loop
        here := next_flow(here, p_newest);
        if here is null then
            return;
        end if;
        found_status := case when here = any(damaged) then 'failed' else status_of_flow(here) end;
        made := span_of_flow(here);
        if (p_status is null or found_status = p_status) and (p_since is null or made[1] >= p_since)
           and (p_until is null or made[1] < p_until) then
            if number = p_limit then
                return query select null::text, null::text, null::bigint, null::bigint, shown;
                return;
            end if;
            return query select here, found_status, made[1], made[2], null::text;
            shown := here;
            number := number + 1;
        end if;
    end loop;
    return query select null::text, null::text, null::bigint, null::bigint, here;
end
$body$;
