-- Register a process that waits for hints, and check whether there is work already.
-- in: the queues, and the waiter's name; out: whether a reserve may find something now, as far as that is known without a clock
create or replace function register_waiter(p_queues text[], p_waiter text)
returns boolean language plpgsql @ours@ @one_plan@ set enable_bitmapscan = off as $body$
declare
    one text;
begin
    perform set_config('synchronous_commit', 'off', true);
    insert into waiting (queue, waiter) select q, p_waiter from unnest(p_queues) as q order by 1 on conflict do nothing;
    -- Once a minute, not each time: while a row is locked no enqueue can take it, and so none sends a hint.
    update waiting w set said_at = now()
    where w.queue = any(p_queues) and w.waiter = p_waiter and w.said_at < now() - interval '1 minute';
    -- Each queue by itself: over all of them at once a planner may choose to hash the whole line.
    foreach one in array p_queues loop
        if may_have_work(one, null) then
            return true;
        end if;
    end loop;
    return false;
end
$body$;
