-- The conditions of a listing, for a record `r`. in: as list_ids
create or replace function list_filters(w jsonb, p_now bigint)
returns text language plpgsql immutable as $body$
declare
    filters text := 'true';
    one text;
begin
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
    return filters;
end
$body$;
