-- Up to p_limit ids of the ungrouped jobs of a queue, in order, locked. Damaged records are set aside.
create or replace function take_ungrouped(p_queue text, p_now bigint, p_limit integer)
returns text[] language plpgsql as $body$
declare
    taken text[] := '{}';
    sound text[];
    damaged text[];
    seen text[] := '{}';
begin
    while cardinality(taken) < p_limit loop
        select array_agg(c.id) filter (where c.sound), array_agg(c.id) filter (where c.sound is not true)
        into sound, damaged
        from (select j.id, is_sound(j) as sound
              from jobs j
              where j.queue = p_queue and j.state in (@queued@, @expired@) and j.grp is null and j.wake <= p_now
                and (seen = '{}' or j.id <> all(seen))
              order by j.priority desc, j.due, j.seq
              limit p_limit - cardinality(taken)
              for no key update skip locked) as c;
        taken := taken || coalesce(sound, '{}');
        exit when damaged is null;
        seen := seen || coalesce(sound, '{}') || damaged;
        perform set_aside(damaged, p_now);
    end loop;
    return taken;
end
$body$;
