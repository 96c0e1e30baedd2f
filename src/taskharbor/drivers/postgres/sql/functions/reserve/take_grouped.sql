-- Up to p_more ids of grouped jobs, appended to p_have; the group first that was served longest ago.
-- locks: the groups it takes from, and moves their counters; the jobs
create or replace function take_grouped(p_queue text, p_now bigint, p_more integer, p_have text[])
returns text[] language plpgsql as $body$
declare
    taken text[] := p_have;
    wanted constant integer := cardinality(p_have) + p_more;
    tried text[] := '{}';
    names text[];
    capacities integer[];
    share integer;
    candidate record;
    sound text[];
begin
    while cardinality(taken) < wanted loop
        select array_agg(x.grp), array_agg(x.capacity) into names, capacities
        from (select g.grp, g.lim - g.inflight as capacity from groups g
              where g.queue = p_queue and g.waiting > 0 and g.inflight < g.lim and g.grp <> all(tried)
              order by g.served limit wanted - cardinality(taken) for no key update skip locked) as x;
        exit when names is null;
        share := greatest(1, (wanted - cardinality(taken)) / cardinality(names));
        for candidate in
            select n.grp,
                   array(select j.id from jobs j
                         where j.queue = p_queue and j.grp = n.grp and j.state in (@queued@, @expired@)
                           and j.wake <= p_now and (taken = '{}' or j.id <> all(taken))
                         order by j.due, j.seq
                         -- A lease that had ended for a faster clock counts again for this one.
                         limit greatest(least(share, n.capacity - (
                             select count(*) from jobs h where h.queue = p_queue and h.grp = n.grp
                             and h.state in (@queued@, @expired@) and h.due > p_now and h.wake > p_now
                             and h.token is not null)), 0)
                         for no key update skip locked) as ids
            from unnest(names, capacities) as n(grp, capacity)
        loop
            if candidate.ids = '{}' then
                tried := tried || candidate.grp;
                -- Other calls have them locked, they are due only for a faster clock, or another program has damaged the
                -- counter: count anew.
                update groups g
                set waiting = (select count(*) from jobs j where j.queue = p_queue and j.grp = candidate.grp
                               and j.state in (@queued@, @expired@))
                              - (select count(*) from jobs j where j.id = any(taken) and j.grp = candidate.grp)
                where g.queue = p_queue and g.grp = candidate.grp;
            else
                sound := admit(p_queue, candidate.grp, candidate.ids, p_now);
                taken := taken || sound;
                if sound = '{}' and exists (select from jobs j where j.id = candidate.ids[1]) then
                    tried := tried || candidate.grp;  -- it is damaged, and another transaction has it locked
                end if;
            end if;
        end loop;
    end loop;
    return taken;
end
$body$;
