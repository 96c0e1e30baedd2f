-- The conditions of a listing, for a record `r`. in: as list_ids
create or replace function list_filters(w jsonb, p_now bigint)
returns text language plpgsql immutable as $body$
declare
    filters text := 'true';
    one text;
begin
    foreach one in array '{queue,type,grp,flow_id,fingerprint}'::text[] loop
        if w ? one then
            filters := filters || format(case when one = 'fingerprint'  -- null stands for empty
                                              then ' and coalesce(r.%I, '''') = %L' else ' and r.%I = %L' end,
                                         one, w ->> one);
        end if;
    end loop;
    if w ?| '{error_class,error_name}' then
        filters := filters || ' and (false';
        if w ? 'error_class' then  -- not compared if it is null: that would be true where transform_null_equals is on
            filters := filters || format(' or coalesce(r.error_class, '''') = %L', w ->> 'error_class');
        end if;
        if w ? 'error_name' then
            filters := filters || format(
                ' or right(r.error_class, %s) = %L', length(w ->> 'error_name') + 1, '.' || (w ->> 'error_name'));
        end if;
        filters := filters || ')';
    end if;
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
