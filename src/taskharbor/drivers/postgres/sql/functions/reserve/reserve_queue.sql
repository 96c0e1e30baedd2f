-- Reserve from one queue. The common case, in two statements: ungrouped jobs that are due, and nothing else to do.
-- in:  as reserve_queues, without p_scan_from; out: as reserve_queues
-- The index is scanned once (materialized) and the rows are updated by their ctid: the planner has no other plan.
create or replace function reserve_queue(p_queue text, p_now bigint, p_expires bigint, p_limit integer, p_worker text,
                                         p_tokens text, p_durable boolean)
returns setof reserved_job language plpgsql @ours@ @one_plan@ @in_index_order@ @nested_loops@ as $body$
declare
    tokens constant text[] := string_to_array(p_tokens, ',');
    read_before bigint := index_tuples_read();
    number integer;
begin
    if current_setting('transaction_isolation') <> 'read committed' then perform refuse_isolation(); end if;
    if not p_durable then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    if needs_all_steps(p_queue, p_now) or index_tuples_read() - read_before >= 5000 then
        return query select * from reserve_queues(json_build_array(p_queue)::text, p_now, p_expires, p_limit, p_worker,
                                                  p_tokens, null, p_durable);
        return;
    end if;
    read_before := index_tuples_read();
    return query
        with line as materialized (
            select j.ctid as place, is_sound(j) as sound
            from jobs j
            where j.queue = p_queue and j.state in (@queued@, @expired@) and j.grp is null and j.wake <= p_now
            order by j.priority desc, j.due, j.seq
            limit p_limit
            for no key update skip locked
        )
        update jobs j  -- the same as in lease
        set state = @leased@, wake = p_expires, due = p_expires, token = tokens[t.n],
            worker = p_worker, began_at = p_now, deliveries = j.deliveries + 1,
            lost = j.lost + case when j.state = @expired@ then 1 else 0 end,
            lost_by = case when j.state = @expired@ then loss_of(j, j.wake) else j.lost_by end,
            run_at = case when j.state = @expired@ then null else j.run_at end, settled = null, settled_as = null
        from (select l.place, row_number() over () as n from line l where l.sound) as t
        where j.ctid = t.place
        returning (as_reserved(j)).*;
    get diagnostics number = row_count;
    if index_tuples_read() - read_before > 1000 + 10 * p_limit then
        -- The place before the first live job in the line, as start_of reads it; a minute ago if the line is empty.
        return next scan_start(jsonb_build_object('=' || p_queue, coalesce(
            (select jsonb_build_array(j.priority, j.due, j.seq - 1) from jobs j
             where j.queue = p_queue and j.state in (@queued@, @expired@) and j.grp is null
             order by j.priority desc, j.due, j.seq limit 1),
            jsonb_build_array(0, greatest(p_now - 60000000, 0), 0))));
    elsif number < p_limit and exists (select from jobs j where j.queue = p_queue and j.state in (@queued@, @expired@)
                                       and j.grp is null and j.wake <= p_now) then
        return query select * from reserve_rest(p_queue, p_now, p_expires, p_limit, p_worker, tokens, number);
    end if;
end
$body$;
