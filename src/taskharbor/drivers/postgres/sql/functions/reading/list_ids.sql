-- The ids of a page of a listing, in order.
-- in:  p_wanted   JSON object: queue, type, grp, flow_id, error_class, fingerprint, state, since, until, after: each only
--                 if it is asked for
--      p_newest   whether the last id comes first; p_limit; p_most: how many records are looked at; p_now
-- out: ids: at most p_limit; last: null, or the record behind which the next page begins
-- The statement is made for what is asked, and planned anew: the tables may have grown a thousandfold since the last call.
create or replace function list_ids(p_wanted text, p_newest boolean, p_limit integer, p_most integer, p_now bigint,
                                    out ids text[], out last text)
language plpgsql stable
set search_path = @schema@, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set enable_hashjoin = off set enable_mergejoin = off set enable_incremental_sort = off set jit = off as $body$
declare
    w constant jsonb := p_wanted::jsonb;
    scanned text;
    filters text := 'true';
    held text[];
    one text;
begin
    if w ->> 'state' = 'inflight' then
        execute format('select array(select x.id from jobs x where x.state = @leased@ union all '
                       'select y.id from jobs y where y.state = @expired@ limit %s)', p_most + 1) into held;
    end if;
    scanned := format('select r.* from (%s) as r where %s order by r.id %s limit %s',
                      listed_tables(w, case when cardinality(held) <= p_most then held end),
                      coalesce('r.id ' || case when p_newest then '< ' else '> ' end || quote_literal(w ->> 'after'), 'true'),
                      case when p_newest then 'desc' else 'asc' end, p_most);
    foreach one in array '{queue,type,grp,flow_id,error_class,fingerprint}'::text[] loop
        if w ? one then
            filters := filters || format(case when one in ('error_class', 'fingerprint')  -- null stands for empty
                                              then ' and coalesce(r.%I, '''') = %L' else ' and r.%I = %L' end,
                                         one, w ->> one);
        end if;
    end loop;
    if w ? 'state' then
        filters := filters || format(' and state_of(r.state, r.run_at, r.wake, %s) = %L', p_now, w ->> 'state');
    end if;
    foreach one in array '{since,until}'::text[] loop
        if w ? one then
            filters := filters || format(
                ' and coalesce(case when r.state not between @blocked@ and @expired@ then r.finished_at end, '
                'r.created_at, 0) %s %s', case one when 'since' then '>=' else '<' end, (w ->> one)::bigint);
        end if;
    end loop;
    execute format('select array(select r.id from (%s) as r where %s limit %s)', scanned, filters, p_limit + 1)
        into ids;
    if cardinality(ids) > p_limit then
        ids := ids[:p_limit];
        last := ids[p_limit];
    else
        execute format('select r.id from (%s) as r offset %s limit 1', scanned, p_most - 1)
            into last;
    end if;
end
$body$;
