-- Bring into the line what is due in these queues.
-- in: the queues in the order of their turns; the time; where scans start (see start_of); out: where the next scans may start
-- locks: first the rows of new queues, in the order of names: two calls that are the first on the same queues must not
--      deadlock; then see wait_for_turn and promote
create or replace function line_up(p_queues text[], p_now bigint, p_scan jsonb)
returns jsonb language plpgsql as $body$
declare
    sorted constant text[] := case when cardinality(p_queues) = 1 then p_queues
                                   else array(select n from unnest(p_queues) as n order by n collate "C") end;
    due_after constant bigint := coalesce((p_scan ->> 'due_after')::bigint, -1);
    read_before bigint;
    promoted integer := 0;
begin
    insert into queues (queue) select n from unnest(sorted) as n
    where not exists (select from queues q where q.queue = n collate "C") order by n collate "C" on conflict do nothing;
    read_before := index_tuples_read();
    if wait_for_turn(sorted, p_now, due_after) then
        promoted := promote(p_queues, p_now, due_after);
    end if;
    if index_tuples_read() - read_before - promoted > 5000 then  -- dead ones
        return p_scan || jsonb_build_object('due_after', greatest(p_now - 1000000, 0));
    end if;
    return p_scan;
end
$body$;
