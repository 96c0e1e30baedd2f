-- Due schedules in the order of their moments, then of their names; and when the next one will be due.
-- in: a JSON array of queues; the time; the moment and the name behind which they begin; how many
-- out: a row for each; then one without a name, whose next_at is the earliest moment behind p_now, or null
-- Two lookups in one index for each queue: what other queues have, and what is due later, costs nothing.
create or replace function due_schedules(p_queues text, p_now bigint, p_at bigint, p_name text, p_limit integer)
returns table (name text, queue text, revision text, next_at bigint, body bytea) language plpgsql stable
@ours@ @one_plan@ @in_index_order@ set enable_incremental_sort = off as $body$
#variable_conflict use_column
declare
    queue_names text[] := array(select json_array_elements_text(p_queues::json));
begin
    return query
        select x.name, x.queue, x.revision, x.next_at, x.body
        from unnest(queue_names) as q(one) cross join lateral (
            select s.name, s.queue, s.revision, s.next_at, s.body from schedules s
            where s.queue = q.one and (s.next_at, s.name || '') > (p_at, p_name) and s.next_at <= p_now
            order by s.next_at, s.name || '' limit p_limit) as x
        order by x.next_at, x.name limit p_limit;
    return query
        select null::text, null::text, null::text, min(x.next_at), null::bytea
        from unnest(queue_names) as q(one) cross join lateral (
            select s.next_at from schedules s where s.queue = q.one and s.next_at > p_now
            order by s.next_at limit 1) as x;
end
$body$;
