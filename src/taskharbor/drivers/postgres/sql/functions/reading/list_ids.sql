-- The ids of a page of a listing, in order.
-- in:  p_wanted   JSON object: queue, type, grp, flow_id, error_class, error_name, fingerprint, state, since, until, after:
--                 each only if it is asked for; of error_class and error_name one is enough
--      p_newest   whether the last id comes first; p_limit; p_most: how many records are looked at; p_now
-- out: ids: at most p_limit; last: null, or the record behind which the next page begins
-- Each part of the tables is read by itself, in the order of one index, until the page is full or enough was looked at;
-- what is behind the place where one of them stopped is left to the next page. (Over all parts at once the planner reads
-- and sorts everything.) The statements are planned anew: the tables may have grown a thousandfold since the last call.
create or replace function list_ids(p_wanted text, p_newest boolean, p_limit integer, p_most integer, p_now bigint,
                                    out ids text[], out last text)
language plpgsql stable @ours@ @in_index_order@ @nested_loops@ set enable_incremental_sort = off as $body$
declare
    w constant jsonb := p_wanted::jsonb;
    behind constant text := coalesce(
        'r.id ' || case when p_newest then '< ' else '> ' end || quote_literal(w ->> 'after'), 'true');
    direction constant text := case when p_newest then 'desc' else 'asc' end;
    most constant integer := p_most / case when w ? 'state' and not w ? 'flow_id' then 1 else 2 end;
    held text[];
    part text;
    scanned text;
    found_ids text[];
    stopped text;
begin
    if w ->> 'state' = 'inflight' then
        execute format('select array(select x.id from jobs x where x.state = @leased@ union all '
                       'select y.id from jobs y where y.state = @expired@ limit %s)', p_most + 1) into held;
    end if;
    ids := '{}';
    foreach part in array listed_tables(w, case when cardinality(held) <= p_most then held end) loop
        scanned := format('select * from %s and %s order by r.id %s limit %s', part, behind, direction, most);
        execute format('select array(select r.id from (%s) as r where %s limit %s)', scanned, list_filters(w, p_now),
                       p_limit + 1) into found_ids;
        ids := ids || found_ids;
        if cardinality(found_ids) <= p_limit then
            execute format('select r.id from (%s) as r offset %s limit 1', scanned, most - 1) into stopped;
            last := case when p_newest then greatest(last collate "C", stopped) else least(last collate "C", stopped) end;
        end if;
    end loop;
    ids := array(select x from unnest(ids) as x
                 where last is null or case when p_newest then x >= last collate "C" else x <= last collate "C" end);
    if p_newest then
        ids := array(select x from unnest(ids) as x order by x collate "C" desc limit p_limit + 1);
    else
        ids := array(select x from unnest(ids) as x order by x collate "C" limit p_limit + 1);
    end if;
    if cardinality(ids) > p_limit then
        ids := ids[:p_limit];
        last := ids[p_limit];
    end if;
end
$body$;
