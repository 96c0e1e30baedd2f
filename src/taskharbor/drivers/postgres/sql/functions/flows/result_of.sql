-- The result of a job, or of the last job that it was handed over to.
create or replace function result_of(p_id text)
returns bytea language plpgsql stable set search_path = @schema@, pg_temp set jit = off set enable_seqscan = off as $body$
declare
    last_result bytea := null;
    next_id text := p_id;
    here record;
begin
    for turn in 1..10000 loop
        exit when next_id is null;
        select r.result, r.handed_to into here from records r where r.id = next_id;
        exit when not found;
        last_result := here.result;
        next_id := here.handed_to;
    end loop;
    return last_result;
end
$body$;
