-- Let follow what a cancel or a requeue has left (see follow), then delete up to p_limit done and cancelled jobs: those
-- without a keep_for that finished before p_before, and those that are to be kept until a moment before p_kept_before.
-- out: how many
-- locks: see follow and prune_ended, and idle groups that no other call has locked
create or replace function prune(p_before bigint, p_kept_before bigint, p_limit integer)
returns integer language plpgsql @ours@ @one_plan@ @in_index_order@ @nested_loops@ as $body$
declare
    number integer;
begin
    if current_setting('transaction_isolation') <> 'read committed' then perform refuse_isolation(); end if;
    number := follow_noted(p_kept_before, p_limit);
    number := number + prune_ended(0, p_kept_before, p_limit - number);
    number := number + prune_ended(1, p_before, p_limit - number);
    delete from groups g where g.ctid = any(array(
        select x.ctid from groups x where x.waiting = 0 and x.inflight = 0 limit 1000 for update skip locked));
    return number;
end
$body$;
