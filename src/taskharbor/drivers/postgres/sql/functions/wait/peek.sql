-- Whether a reserve of one of these queues may find something now, as far as that is known without a clock.
-- Each queue by itself: over all of them at once a planner may choose to hash the whole line.
create or replace function peek(p_queues text[])
returns boolean language plpgsql stable as $body$
declare
    one text;
begin
    foreach one in array p_queues loop
        continue when exists (select from queues q where q.queue = one and q.paused);
        if exists (select from jobs j where j.queue = one and j.state in (@queued@, @expired@) and j.grp is null)
           or exists (select from jobs j where j.queue = one and j.state = @scheduled@ and j.wake <= 0)
           or exists (select from groups g where g.queue = one and g.waiting > 0 and g.inflight < g.lim) then
            return true;
        end if;
    end loop;
    return false;
end
$body$;
