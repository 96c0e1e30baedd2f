-- The records with these ids, in no order, whatever the planner of the statement around it takes for small.
create or replace function records_of(p_ids text[])
returns setof jobs language plpgsql stable
set search_path = @schema@, pg_temp set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $body$
begin
    return query select * from jobs j where j.id = any(p_ids);
    return query select * from history h where h.id = any(p_ids);
end
$body$;
