-- Where groups have capacity, or jobs are due to be promoted, let the reserves of a queue run one at a time.
-- Otherwise one would find nothing, because another has promoted the jobs and not yet committed, or has half filled a
-- group. A line of ungrouped jobs, the common case, is shared by all.
-- out: whether there is anything to promote; locks: an advisory lock for each such queue, in one order
create or replace function wait_for_turn(p_queues text[], p_now bigint, p_due_after bigint)
returns boolean language plpgsql as $body$
declare
    one text;
    locks integer[] := '{}';
    is_due boolean := false;
begin
    foreach one in array p_queues loop
        if exists (select from jobs j where j.queue = one and j.state = @scheduled@ and j.wake <= p_now
                   and j.wake > p_due_after)
           or exists (select from jobs j where j.queue = one and j.state = @leased@ and j.wake <= p_now
                      and j.wake > p_due_after)
           or (p_due_after >= 0
               and exists (select from jobs j where j.queue = one and j.state = @scheduled@ and j.wake <= 0)) then
            locks := locks || hashtext(current_schema() || '.' || one);
            is_due := true;
        elsif exists (select from groups g where g.queue = one and g.waiting > 0 and g.inflight < g.lim) then
            locks := locks || hashtext(current_schema() || '.' || one);
        end if;
    end loop;
    if locks <> '{}' then
        perform pg_advisory_xact_lock(1952540009, x.lock)
        from (select distinct l as lock from unnest(locks) as l order by 1) as x;
    end if;
    return is_due or exists (select from group_limits l where l.queue = any(p_queues) and not l.applied)
           or exists (select from jobs j where j.state < @blocked@ or j.state > @expired@);
end
$body$;
