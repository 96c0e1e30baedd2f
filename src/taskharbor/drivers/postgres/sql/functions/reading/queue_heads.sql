-- The heads of queues: since when the oldest ready job waits, and the jobs that come next. Writes nothing, reads no payload.
-- in: a JSON array of queues; the time; how many jobs of each; how many entries of an index to look at in each
-- out: (queue, oldest, oldest_known, following): the time or null; JSON, or null if it is not known, as next_in_queue
create or replace function queue_heads(p_queues text, p_now bigint, p_next integer, p_looks integer)
returns table (queue text, oldest bigint, oldest_known boolean, following text) language plpgsql stable
@ours@ @one_plan@ set enable_bitmapscan = off as $body$
begin
    for queue in select json_array_elements_text(p_queues::json) loop
        select o.oldest, o.is_known into oldest, oldest_known from oldest_in_queue(queue, p_now, p_looks) as o;
        following := case when p_next > 0 then next_in_queue(queue, p_now, p_next, p_looks) end;
        return next;
    end loop;
end
$body$;
