-- Let follow what a cancel or a requeue has left (see follow), then delete up to p_limit done and cancelled jobs: those without a keep_for that finished before p_before, and
-- those that are to be kept until a moment before p_kept_before. out: how many
-- locks: see follow, prune_kept and prune_sweep
create or replace function prune(p_before bigint, p_kept_before bigint, p_limit integer)
returns integer language plpgsql @ours@ @one_plan@ @in_index_order@ @nested_loops@ as $body$
declare
    number integer;
begin
    if current_setting('transaction_isolation') <> 'read committed' then perform refuse_isolation(); end if;
    number := follow_noted(p_kept_before, p_limit);
    number := number + prune_kept(p_kept_before, p_limit - number);
    return number + prune_sweep(p_before, p_limit - number);
end
$body$;
