-- Up to p_limit ids of one queue, locked; grouped and ungrouped jobs take turns.
-- in: p_start: null, or where the scan of the ungrouped jobs starts (see start_of)
create or replace function take(p_queue text, p_now bigint, p_limit integer, p_start bigint[])
returns text[] language plpgsql as $body$
declare
    grouped text[];
    ungrouped text[];
    groups_first boolean;
begin
    if not exists (select from groups g where g.queue = p_queue and g.waiting > 0 and g.inflight < g.lim) then
        return case when p_start is null then take_ungrouped(p_queue, p_now, p_limit)
                    else take_after(p_queue, p_now, p_limit, p_start) end;
    end if;
    select q.groups_next into groups_first from queues q where q.queue = p_queue for update skip locked;
    if not found then  -- another reserve has it locked
        groups_first := random() < 0.5;
    end if;
    grouped := take_grouped(p_queue, p_now, (p_limit + case when groups_first then 1 else 0 end) / 2, '{}');
    ungrouped := case when p_start is null then take_ungrouped(p_queue, p_now, p_limit - cardinality(grouped))
                      else take_after(p_queue, p_now, p_limit - cardinality(grouped), p_start) end;
    if cardinality(grouped) + cardinality(ungrouped) < p_limit then
        grouped := take_grouped(p_queue, p_now, p_limit - cardinality(grouped) - cardinality(ungrouped), grouped);
    end if;
    if cardinality(grouped) + cardinality(ungrouped) > 0 then
        update queues q set groups_next = case when cardinality(grouped) = cardinality(ungrouped) then groups_first
                                               else cardinality(grouped) < cardinality(ungrouped) end
        where q.queue = any(array(select x.queue from queues x where x.queue = p_queue for update skip locked));
    end if;
    return grouped || ungrouped;
end
$body$;
