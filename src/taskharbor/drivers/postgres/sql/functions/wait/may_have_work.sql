-- Whether a reserve of a queue may find something. p_now: null if what is due only by a clock does not count.
create or replace function may_have_work(p_queue text, p_now bigint)
returns boolean language plpgsql stable as $body$
begin
    return not exists (select from queues q where q.queue = p_queue and q.paused)
        and (exists (select from jobs j where j.queue = p_queue and j.state in (@queued@, @expired@) and j.grp is null)
             or exists (select from jobs j where j.queue = p_queue and j.state = @scheduled@
                        and j.wake <= coalesce(p_now, 0))
             or exists (select from jobs j where j.queue = p_queue and j.state = @leased@ and j.wake <= p_now)
             or exists (select from groups g where g.queue = p_queue and g.waiting > 0 and g.inflight < g.lim));
end
$body$;
