-- Whether a reserve of this queue has more to do than to take ungrouped jobs that are due: jobs to promote, groups with
-- capacity, a pause, new limits, or records in an unknown state.
create or replace function needs_all_steps(p_queue text, p_now bigint)
returns boolean language plpgsql as $body$
begin
    return exists (select from jobs j where j.queue = p_queue and j.state = @leased@ and j.wake <= p_now)
        or exists (select from jobs j where j.queue = p_queue and j.state = @scheduled@ and j.wake <= p_now)
        or exists (select from groups g where g.queue = p_queue and g.waiting > 0 and g.inflight < g.lim)
        or exists (select from queues q where q.queue = p_queue and q.paused)
        or exists (select from group_limits l where l.queue = p_queue and not l.applied)
        or exists (select from jobs j where j.state < @blocked@ or j.state > @expired@);
end
$body$;
