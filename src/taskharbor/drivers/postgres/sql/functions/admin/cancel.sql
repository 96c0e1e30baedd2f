-- Cancel jobs that have not ended.
-- in:  a JSON array of ids; the time; the reason; null, or a JSON array of what was seen of each job: see seen_of
-- out: a text for each id, in order, as all functions of admin return it: null: done (cancelled before, too); 'unknown';
--      'changed': it is not as it was seen; 'needed N': N unfinished jobs depend on it; 'locked': another call has it
--      locked, to be sent again; else the state that does not allow the change
-- locks: the jobs that no other call has locked (none is waited for while others are locked), then groups in the order
--      of names; before them what follows (see follow)
create or replace function cancel(p_ids text, p_now bigint, p_reason text, p_seen text)
returns text[] language plpgsql @ours@ as $body$
declare
    results text[] := '{}';
    seen text[] := array(select json_array_elements_text(p_seen::json));
    one text;
    n integer := 0;
    j jobs;
    was integer;
    is_changed boolean;
    changes group_change[] := '{}';
    stopped text[] := '{}';
begin
    if current_setting('transaction_isolation') <> 'read committed' then perform refuse_isolation(); end if;
    for one in select json_array_elements_text(p_ids::json) loop
        n := n + 1;
        select x.* into j from jobs x where x.id = one and x.state + 0 between @blocked@ and @expired@
        for update skip locked;
        if found then
            if p_seen is not null and seen[n] <> seen_of(j.deliveries, j.edits, j.finished_at) then
                results := results || 'changed'::text;
                continue;
            end if;
            delete from jobs x where x.id = one;
            if j.grp is not null and j.state > @scheduled@ then
                changes := changes || left_group(j.queue, j.grp, j.state);
            end if;
            j := set_finished(j, @cancelled@::smallint, p_reason, p_now);
            insert into history select (j).*;
            stopped := stopped || array_remove(array[case when j.flow_id is not null then j.id end], null);
            results := results || null::text;
        else
            select r.state, seen[n] <> seen_of(r.deliveries, r.edits, r.finished_at) into was, is_changed
            from records r where r.id = one;
            results := results || case when not found then 'unknown'
                                       when was between @blocked@ and @expired@ then 'locked'
                                       when is_changed then 'changed' when was = @cancelled@ then null
                                       when was = @done@ then 'done' else 'dlq' end;
        end if;
    end loop;
    if p_reason <> 'flow cancelled' and stopped <> '{}' then
        perform follow(stopped, p_now, @most_followed@);
    end if;
    if cardinality(changes) > 0 then
        perform regroup(changes);
        perform hint(array(select c.queue from unnest(changes) as c), false);
    end if;
    return results;
end
$body$;
