-- enqueue for the common case: one job, without a key, dependencies, a flow or a limit for its group.
-- out: whether it was stored before
create or replace function enqueue_one(p_id text, p_queue text, p_type text, p_payload text, p_run_at bigint,
                                       p_timeout bigint, p_priority integer, p_attempts integer,
                                       p_max_attempts integer, p_grp text, p_metadata text, p_created_at bigint,
                                       p_now bigint, p_callers boolean)
returns boolean language plpgsql @ours@ @one_plan@ as $body$
declare
    base bigint := nextval('arrival') << 20;
    number integer;
    is_late boolean;
    is_awaited boolean;
begin
    if not p_callers and current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation();
    end if;
    insert into jobs (id, queue, type, payload, run_at, timeout, priority, attempts, max_attempts, deliveries, lost,
                      grp, group_limit, metadata, created_at, state, wake, due, seq, stored)
    values (p_id, p_queue, p_type, decode(p_payload, 'base64'), p_run_at, p_timeout, p_priority, p_attempts,
            p_max_attempts, 0, 0, p_grp, 0, p_metadata, coalesce(p_created_at, p_now),
            first_state(p_grp, p_run_at, p_now),
            coalesce(p_run_at, 0), greatest(coalesce(p_run_at, 0), p_now), base, base)
    on conflict (id) do nothing;
    get diagnostics number = row_count;
    -- A new read: a job that was in `jobs` a moment ago may have finished since.
    select exists (select from history h where h.id = p_id), exists (select from waiting w where w.queue = p_queue)
    into is_late, is_awaited;
    if is_late then
        delete from jobs j where j.id = p_id;
        return true;
    end if;
    if p_callers and number > 0 and current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_outdated(array[p_id], null, null);
    end if;
    if number > 0 and is_awaited then
        perform send_hints(array[p_queue], p_callers);
    end if;
    return number = 0;
end
$body$;
