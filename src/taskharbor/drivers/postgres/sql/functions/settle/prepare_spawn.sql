-- Before a job is settled that spawns others: lock what storing these will need, in the order in which every call locks.
-- Two outcomes that took these locks after their groups, or waited for each other's jobs, would deadlock.
-- in:  the job, which is locked; null, or the flows of the jobs it spawns; null, or the dependencies of these that were
--      stored before; whether one of them takes the job's place
-- out: locked: the id of a dependency that another call is ending: nothing more was done; else dependents: a JSON array
--      of the job's dependents, if a spawned job takes its place
-- locks: the flows, shared; dependencies that no other call has locked; dependents in the order of ids
create or replace function prepare_spawn(p_id text, p_flows text, p_dependencies text, p_handover boolean,
                                         out locked text, out dependents text)
language plpgsql @ours@ as $body$
declare
    one text;
    waiting_ids text[];
begin
    if p_flows is not null then
        perform share_flows(array(select json_array_elements_text(p_flows::json)));
    end if;
    if p_dependencies is not null then
        for one in select d from json_array_elements_text(p_dependencies::json) as d order by 1 loop
            locked := (select l.locked from last_unlocked(one) as l);
            if locked is not null then
                return;
            end if;
        end loop;
    end if;
    if p_handover then
        waiting_ids := array(select e.dependent from edges e where e.dependency = p_id);
        perform from jobs j where j.id = any(waiting_ids) order by j.id for no key update;
        perform from history h where h.id = any(waiting_ids) order by h.id for no key update;
        dependents := array_to_json(waiting_ids)::text;
    end if;
end
$body$;
