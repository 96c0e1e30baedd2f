-- Put dead and cancelled jobs back. in: a JSON array of ids; the time; null, or when they shall run; whether attempts are
-- set to 0; null, or what was seen of each, as for cancel. out: as cancel
-- locks: the jobs, and the dependencies of each in the weakest mode, so that none is pruned or deleted meanwhile; a job
--      whose dependency another call has locked counts as locked
create or replace function requeue(p_ids text, p_now bigint, p_run_at bigint, p_reset boolean, p_seen text)
returns text[] language plpgsql @ours@ as $body$
declare
    base bigint := nextval('arrival') << 20;
    results text[] := '{}';
    seen text[] := array(select json_array_elements_text(p_seen::json));
    hinted text[] := '{}';
    resumed text[] := '{}';
    ahead text[] := '{}';
    one text;
    j jobs;
    n integer := 0;
begin
    if current_setting('transaction_isolation') <> 'read committed' then perform refuse_isolation(); end if;
    for one in select json_array_elements_text(p_ids::json) loop
        n := n + 1;
        select x.* into j from history x where x.id = one and x.state + 0 in (@dead@, @cancelled@)
        for update skip locked;
        if not found then
            select x.* into j from jobs x where x.id = one and x.state + 0 not between @blocked@ and @expired@
            for update skip locked;
        end if;
        if not found then
            results := results || coalesce(
                (select case when r.state not between @blocked@ and @done@ then 'locked'
                             when seen[n] <> seen_of(r.deliveries, r.edits, r.finished_at) then 'changed'
                             else state_of(r.state, r.run_at, r.wake, p_now) end
                 from records r where r.id = one), 'unknown');
        elsif p_seen is not null and seen[n] <> seen_of(j.deliveries, j.edits, j.finished_at) then
            results := results || 'changed'::text;
        elsif not keep_all(j.depends_on) then
            results := results || 'locked'::text;
        else
            perform put_back(j, p_now, p_run_at, p_reset, base + n);
            hinted := hinted || j.queue;
            if j.flow_id is not null then
                resumed := resumed || j.flow_id;
                ahead := ahead || j.id;
            end if;
            results := results || null::text;
        end if;
    end loop;
    if resumed <> '{}' then
        delete from flows f where f.ctid = any(array(
            select x.ctid from flows x where x.flow_id = any(resumed) order by x.flow_id for update));
    end if;
    if ahead <> '{}' then
        perform follow(ahead, p_now, @most_followed@);
    end if;
    perform hint(hinted, false);
    return results;
end
$body$;
