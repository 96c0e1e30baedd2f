-- Schedules in the order of their names.
-- in: null, or a JSON array of names; null, or their queue; the name behind which they begin; how many
-- Each of the three statements reads one index in its order, as far as it is needed.
create or replace function list_schedules(p_names text, p_queue text, p_after text, p_limit integer)
returns table (name text, queue text, revision text, next_at bigint, body bytea) language plpgsql stable
@ours@ @one_plan@ @in_index_order@ set enable_incremental_sort = off as $body$
#variable_conflict use_column
begin
    if p_names is not null then
        return query
            select s.name, s.queue, s.revision, s.next_at, s.body from schedules s
            where s.name = any(array(select json_array_elements_text(p_names::json))) and s.name > p_after
              and (p_queue is null or s.queue = p_queue)
            order by s.name limit p_limit;
    elsif p_queue is not null then
        return query
            select s.name, s.queue, s.revision, s.next_at, s.body from schedules s
            where s.queue = p_queue and s.name || '' > p_after order by s.name || '' limit p_limit;
    else
        return query
            select s.name, s.queue, s.revision, s.next_at, s.body from schedules s
            where s.name > p_after order by s.name limit p_limit;
    end if;
end
$body$;
