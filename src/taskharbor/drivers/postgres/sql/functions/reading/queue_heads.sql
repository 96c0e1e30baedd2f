-- The heads of queues: since when the oldest ready job waits, and the jobs that come next. Writes nothing, reads no payload.
-- in: a JSON array of queues; the time; how many jobs of each; how many entries of an index to look at in each
-- out: (queue, oldest, oldest_known, following): the time or null; JSON, or null if it is not known, as next_in_queue
create or replace function queue_heads(p_queues text, p_now bigint, p_next integer, p_looks integer)
returns table (queue text, oldest bigint, oldest_known boolean, following text) language plpgsql stable
set search_path = @schema@, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan as $body$
declare
    given jsonb;
begin
    for queue in select json_array_elements_text(p_queues::json) loop
        given := oldest_in_queue(queue, p_now, p_looks);
        oldest := (given ->> 'oldest')::bigint;
        oldest_known := (given ->> 'known')::boolean;
        following := case when p_next > 0 then next_in_queue(queue, p_now, p_next, p_looks) end;
        return next;
    end loop;
end
$body$;
