-- Count the waiting jobs of a group anew, after none could be taken: other calls have them locked, they are due only for
-- a faster clock, or another program has damaged the counter.
create or replace function recount_waiting(p_queue text, p_grp text, p_taken text[])
returns void language plpgsql as $body$
begin
    update groups g
    set waiting = (select count(*) from jobs j
                   where j.queue = p_queue and j.grp = p_grp and j.state in (@queued@, @expired@))
                  - (select count(*) from jobs j where j.id = any(p_taken) and j.grp = p_grp)
    where g.queue = p_queue and g.grp = p_grp;
end
$body$;
