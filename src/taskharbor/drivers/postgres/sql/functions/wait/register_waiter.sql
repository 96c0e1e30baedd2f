-- Register a process that waits for hints, and check whether there is work already.
-- in: the queues, and the waiter's name; out: whether a reserve may find something
create or replace function register_waiter(p_queues text[], p_waiter text)
returns boolean language plpgsql
set search_path = @schema@, pg_temp set jit = off set enable_seqscan = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan as $body$
begin
    perform set_config('synchronous_commit', 'off', true);
    insert into waiting (queue, waiter) select q, p_waiter from unnest(p_queues) as q order by 1 on conflict do nothing;
    -- Once a minute, not each time: while a row is locked no enqueue can take it, and so none sends a hint.
    update waiting w set said_at = now()
    where w.queue = any(p_queues) and w.waiter = p_waiter and w.said_at < now() - interval '1 minute';
    return peek(p_queues);
end
$body$;
