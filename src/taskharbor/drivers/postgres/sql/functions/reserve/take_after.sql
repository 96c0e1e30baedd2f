-- take_ungrouped from a place in the line on. Damaged records wait for a scan from the head.
-- in: p_start: the priority, due and seq of the place
create or replace function take_after(p_queue text, p_now bigint, p_limit integer, p_start bigint[])
returns text[] language plpgsql as $body$
declare
    taken text[] := array(
        select j.id from jobs j
        where j.queue = p_queue and j.state in (@queued@, @expired@) and j.grp is null and j.wake <= p_now
          and j.priority = p_start[1] and (j.due, j.seq) > (p_start[2], p_start[3]) and damage_of(j) is null
        order by j.due, j.seq limit p_limit for no key update skip locked);
begin
    if cardinality(taken) < p_limit then
        taken := taken || array(
            select j.id from jobs j
            where j.queue = p_queue and j.state in (@queued@, @expired@) and j.grp is null and j.wake <= p_now
              and j.priority < p_start[1] and damage_of(j) is null
            order by j.priority desc, j.due, j.seq limit p_limit - cardinality(taken)
            for no key update skip locked);
    end if;
    return taken;
end
$body$;
