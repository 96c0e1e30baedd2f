-- Retention: delete up to p_limit done and cancelled jobs: those without a keep_for that finished before p_before, and
-- those that are to be kept until a moment before p_kept_before. out: how many
-- locks: see prune_kept and prune_sweep
create or replace function prune(p_before bigint, p_kept_before bigint, p_limit integer)
returns integer language plpgsql
set search_path = @schema@, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $body$
declare
    number integer;
begin
    if current_setting('transaction_isolation') <> 'read committed' then perform refuse_isolation(); end if;
    number := prune_kept(p_kept_before, p_limit);
    return number + prune_sweep(p_before, p_limit - number);
end
$body$;
