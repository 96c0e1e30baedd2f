-- Store jobs, all or none: one statement for a call of any size, on any kind of connection.
-- in:  p_jobs    JSON array of records, payload in base64, each id once; `o` is the job's position in the call
--      p_keys    null, or for the jobs with an idempotency key: o, id, queue, key (base64)
--      p_edges   null, or for the jobs with dependencies: id, pos, dep
--      p_group_limits null, or for the jobs with a group_limit: o, id, queue, grp, lim
--      p_flows   null, or the flows that are named
--      p_queues  the queues that are named
--      p_callers whether this is the caller's own transaction: see send_hints and refuse_outdated
-- out: a row for each job that is not new: (id, id of the known job); or one row (null, message) for an invalid call
-- locks: see store
create or replace function enqueue(p_jobs text, p_keys text, p_edges text, p_group_limits text, p_flows text,
                                   p_queues text, p_now bigint, p_callers boolean)
returns table (id text, known text) language plpgsql @ours@ @one_plan@ as $body$
declare
    queue_names text[] := array(select json_array_elements_text(p_queues::json));
begin
    if not p_callers and current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation();
    end if;
    if p_edges is null then
        return query
            select * from store(p_jobs, p_keys, p_edges, p_group_limits, p_flows, queue_names, p_now, p_callers);
    else
        begin  -- a savepoint, which an unknown dependency rolls back to
            return query
                select * from store(p_jobs, p_keys, p_edges, p_group_limits, p_flows, queue_names, p_now, p_callers);
        exception when sqlstate 'TH001' then
            return query select null::text, sqlerrm;
        end;
    end if;
end
$body$;
