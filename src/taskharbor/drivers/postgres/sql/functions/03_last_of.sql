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

-- The same for several, in their order, and nothing but the locks.
create or replace function keep_dependencies(p_ids text)
returns void language plpgsql set search_path = @schema@, pg_temp set jit = off set enable_seqscan = off as $body$
begin
    perform last_of(d) from json_array_elements_text(p_ids::json) as d;
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
