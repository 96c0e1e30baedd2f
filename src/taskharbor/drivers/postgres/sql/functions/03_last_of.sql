-- The job that stands in the place of another, over however many handovers, as far as its successors are still there.
-- in: an id; out: the id of the last one, null if there is no such job
-- locks: each record on the way in the weakest mode: it can be reserved and extended, not settled, until this commits
create or replace function last_of(p_id text)
returns text language plpgsql as $body$
declare
    here text := null;
    next_id text := p_id;
    further text;
begin
    for turn in 1..10000 loop
        exit when next_id is null;
        perform from jobs j where j.id = next_id for key share;
        if found then
            return next_id;
        end if;
        select h.handed_to into further from history h where h.id = next_id for key share;
        if not found then
            perform from jobs j where j.id = next_id for key share;  -- requeued between the two looks
            return case when found then next_id else here end;
        end if;
        here := next_id;
        next_id := further;
    end loop;
    return here;
end
$body$;

-- The same without waiting, and nothing but the locks: the id of a record on the way that somebody else is ending at this
-- moment, null if there is none.
create or replace function locked_before(p_id text)
returns text language plpgsql as $body$
declare
    next_id text := p_id;
    further text;
begin
    for turn in 1..10000 loop
        exit when next_id is null;
        perform from jobs j where j.id = next_id for key share skip locked;
        exit when found;
        select h.handed_to into further from history h where h.id = next_id for key share skip locked;
        if not found then
            -- Locked, or it has moved from one table to the other between the two looks.
            return case when exists (select from records r where r.id = next_id) then next_id end;
        end if;
        next_id := further;
    end loop;
    return null;
end
$body$;

-- Before a job is settled that spawns others: lock what storing these will need, in the order in which everybody does. Two
-- outcomes that took these after their groups, or waited for each other's jobs, would wait in a circle.
-- in:  the job, which is locked; null, or the flows of the jobs it spawns; null, or what these depend on and was stored
--      before; whether one of them takes its place
-- out: the id of a dependency that somebody else is ending: nothing more was done; else the dependents, a JSON array, if
--      one takes its place
-- locks: the flows, shared; dependencies that nobody else has locked; dependents in the order of ids
create or replace function prepare_spawn(p_id text, p_flows text, p_dependencies text, p_handover boolean,
                                         out locked text, out dependents text)
language plpgsql set search_path = @schema@, pg_temp set jit = off set enable_seqscan = off as $body$
declare
    one text;
    waiting_ids text[];
begin
    if p_flows is not null then
        perform share_flows(array(select json_array_elements_text(p_flows::json)));
    end if;
    if p_dependencies is not null then
        for one in select d from json_array_elements_text(p_dependencies::json) as d order by 1 loop
            locked := locked_before(one);
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

-- The result of a job, or of whoever took its place.
create or replace function result_of(p_id text)
returns bytea language plpgsql stable set search_path = @schema@, pg_temp set jit = off set enable_seqscan = off as $body$
declare
    found_result bytea := null;
    next_id text := p_id;
    here record;
begin
    for turn in 1..10000 loop
        exit when next_id is null;
        select r.result, r.handed_to into here from records r where r.id = next_id;
        exit when not found;
        found_result := here.result;
        next_id := here.handed_to;
    end loop;
    return found_result;
end
$body$;
