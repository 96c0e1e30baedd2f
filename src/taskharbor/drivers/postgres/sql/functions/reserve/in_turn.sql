-- The queues that are not paused, the one first that was served longest ago; null if all are paused.
-- in: a JSON array, each queue once
create or replace function in_turn(p_queues text)
returns text[] language plpgsql as $body$
begin
    if json_array_length(p_queues::json) = 1 then
        return case when not exists (select from queues q where q.queue = p_queues::json ->> 0 and q.paused)
                    then array[p_queues::json ->> 0] end;
    end if;
    return (select array_agg(x.queue order by coalesce(q.served, 0), x.n)
            from json_array_elements_text(p_queues::json) with ordinality as x(queue, n)
            left join queues q on q.queue = x.queue collate "C"
            where not coalesce(q.paused, false));
end
$body$;
