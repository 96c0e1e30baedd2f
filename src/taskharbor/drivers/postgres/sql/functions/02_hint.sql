-- Tell whoever waits for one of these queues that work may have arrived; nobody waits: one look, and nothing is sent.
-- in: the queues; p_gently: leave the note of who waits in place, because this transaction may stay open for long
-- out: notifications, sent at commit. Taking the note away coalesces: the next enqueue finds nobody to tell
-- locks: notes that nobody else is taking away at this moment
create or replace function hint(p_queues text[], p_gently boolean)
returns void language plpgsql as $body$
begin
    if exists (select from waiting w where w.queue = any(p_queues)) then
        perform ring(p_queues, p_gently);
    end if;
end
$body$;

-- The same, after that look.
create or replace function ring(p_queues text[], p_gently boolean)
returns void language plpgsql as $body$
declare
    told bigint;
begin
    if p_gently and current_setting('taskharbor.hints', true) = 'off' then
        return;  -- a transaction that is to be prepared may not notify
    end if;
    if p_gently then
        select count(pg_notify('taskharbor:' || md5(current_schema()), x.queue)) into told
        from (select distinct w.queue from waiting w where w.queue = any(p_queues)) as x;
    else
        with gone as (
            delete from waiting w
            where w.ctid = any(array(select x.ctid from waiting x where x.queue = any(p_queues) for update skip locked))
            returning w.queue
        )
        select count(pg_notify('taskharbor:' || md5(current_schema()), x.queue)) into told
        from (select distinct g.queue from gone g) as x;
    end if;
end
$body$;

-- Note that somebody waits, and look whether there is something already.
-- in: the queues, and who waits; out: whether a reserve may find something
create or replace function watch(p_queues text[], p_waiter text)
returns boolean language plpgsql
set search_path = @schema@, pg_temp set jit = off set enable_seqscan = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan as $body$
begin
    perform set_config('synchronous_commit', 'off', true);
    insert into waiting (queue, waiter) select q, p_waiter from unnest(p_queues) as q order by 1 on conflict do nothing;
    -- Seldom: while a note is locked nobody takes it away, and so nobody tells us.
    update waiting w set said_at = now()
    where w.queue = any(p_queues) and w.waiter = p_waiter and w.said_at < now() - interval '1 minute';
    return peek(p_queues);
end
$body$;

-- Whether a reserve of one of these queues may find something now, as far as that can be told without a clock.
-- Queue by queue: over all of them at once a planner may choose to hash the whole line.
create or replace function peek(p_queues text[])
returns boolean language plpgsql stable as $body$
declare
    q text;
begin
    foreach q in array p_queues loop
        continue when exists (select from queues x where x.queue = q and x.paused);
        if exists (select from jobs j where j.queue = q and j.state in (2, 4) and j.grp is null)
           or exists (select from jobs j where j.queue = q and j.state = 1 and j.wake <= 0)
           or exists (select from groups g where g.queue = q and g.waiting > 0 and g.inflight < g.lim) then
            return true;
        end if;
    end loop;
    return false;
end
$body$;

-- The same from outside of the other functions: a queue was resumed.
create or replace function tell(p_queue text)
returns void language sql set search_path = @schema@, pg_temp set jit = off as $body$
    select hint(array[p_queue], false);
$body$;
