-- Delete records, in any state. in: a JSON array of ids; null, or what was seen of each, as for cancel. out: as cancel
-- locks: the jobs that no other call has locked; then see forget; then groups in the order of names
create or replace function delete_jobs(p_ids text, p_seen text)
returns text[] language plpgsql @ours@ as $body$
declare
    results text[] := '{}';
    seen text[] := array(select json_array_elements_text(p_seen::json));
    deleted deleted_job[] := '{}';
    changes group_change[] := '{}';
    one text;
    n integer := 0;
    j jobs;
    needed bigint;
begin
    if current_setting('transaction_isolation') <> 'read committed' then perform refuse_isolation(); end if;
    for one in select json_array_elements_text(p_ids::json) loop
        n := n + 1;
        select x.* into j from jobs x where x.id = one for update skip locked;
        if not found then
            select x.* into j from history x where x.id = one for update skip locked;
        end if;
        if not found then
            results := results || case when exists (select from records r where r.id = one) then 'locked'
                                       else 'unknown' end;
            continue;
        end if;
        if p_seen is not null and seen[n] <> seen_of(j.deliveries, j.edits, j.finished_at) then
            results := results || 'changed'::text;
            continue;
        end if;
        needed := count_dependents(one, null);
        if needed > 0 then
            results := results || ('needed ' || needed);
            continue;
        end if;
        delete from history x where x.id = one;
        delete from jobs x where x.id = one;
        if found and j.grp is not null and (j.state in (@queued@, @leased@, @expired@) or j.token is not null) then
            changes := changes || left_group(j.queue, j.grp, j.state);
        end if;
        deleted := deleted || row(j.id, j.queue, j.key, j.flow_id)::deleted_job;
        results := results || null::text;
    end loop;
    perform forget(deleted);
    if cardinality(changes) > 0 then
        perform regroup(changes);
        perform hint(array(select c.queue from unnest(changes) as c), false);
    end if;
    return results;
end
$body$;
