-- Apply outcomes, each fenced by its lease. One statement for a batch.
-- in:  p_given  JSON array, each job once: o (its position), id, token, kind (0: check only), was (the kind
--               for which a repetition is recognised), result (base64), run_at, attempts, last_error, failed_at,
--               reason, error_class, fingerprint, trail (base64)
--      p_now; p_release: whether the dependents of acked jobs are released; p_retries: whether any kind is a retry
-- out: a row for each outcome that was not applied: see refusals
-- locks: the jobs that no other call has locked (skip locked: it never waits for a job while it holds others); then their
--      dependents in the order of ids; then what follows (see follow); then groups in the order of names
create or replace function settle(p_given text, p_now bigint, p_release boolean, p_retries boolean)
returns table (o integer, code integer, ends bigint) language plpgsql @ours@ @one_plan@ as $body$
#variable_conflict use_column
declare
    base bigint := nextval('arrival') << 20;
    finished record;
    retried record;
    released_positions integer[] := '{}';
    released_queues text[];
    applied integer[];
    changes group_change[];
    hinted text[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then perform refuse_isolation(); end if;
    select * into finished from finish(p_given, p_now);
    applied := finished.positions;
    changes := finished.changes;
    -- A new read: an edge that was added while we waited for the job is visible now.
    if finished.acked is not null and p_release and exists (select from edges) then
        select r.positions, r.queues into released_positions, released_queues
        from release_dependents(finished.acked, finished.acked_positions, p_now, base) as r;
    end if;
    if finished.stopped is not null then
        perform follow(finished.stopped, p_now, @most_followed@);
    end if;
    if p_retries then
        select * into retried from retry_jobs(p_given, p_now, base, released_positions);
        applied := applied || retried.positions;
        changes := changes || retried.changes;
        hinted := retried.queues;
    end if;
    if cardinality(changes) > 0 then
        perform regroup(changes);
        hinted := hinted || array(select c.queue from unnest(changes) as c);
    end if;
    hinted := hinted || released_queues;
    if hinted is not null then
        perform hint(hinted, false);
    end if;
    if cardinality(applied) is distinct from json_array_length(p_given::json) then
        return query select * from refusals(p_given, p_now, applied);
    end if;
end
$body$;
