-- Count jobs of a group as inflight. out: those that are sound; damaged ones are set aside
create or replace function admit(p_queue text, p_group text, p_ids text[], p_now bigint)
returns text[] language plpgsql as $body$
declare
    sound text[];
    damaged text[];
    aside integer := 0;
begin
    select coalesce(array_agg(x.id order by x.n) filter (where damage_of(j) is null), '{}'),
           array_agg(x.id) filter (where damage_of(j) is not null)
    into sound, damaged
    from unnest(p_ids) with ordinality as x(id, n) join jobs j on j.id = x.id;
    if damaged is not null then
        aside := set_aside(damaged, p_now);
    end if;
    update groups g
    set waiting = greatest(g.waiting - cardinality(sound) - aside, 0), inflight = g.inflight + cardinality(sound),
        served = nextval('arrival')
    where g.queue = p_queue and g.grp = p_group;
    return sound;
end
$body$;
