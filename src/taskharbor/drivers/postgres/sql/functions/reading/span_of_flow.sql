-- When the first and the last job of a flow, in the order of ids, were created.
-- Compared and ordered by both columns, so that only the index of flows fits, whatever the planner takes for small.
create or replace function span_of_flow(p_flow text)
returns bigint[] language plpgsql stable as $body$
begin
    return array[
        (select coalesce(x.created_at, 0) from (
            (select j.flow_id, j.id, j.created_at from jobs j
             where j.flow_id is not null and (j.flow_id, j.id) >= (p_flow, '') order by j.flow_id, j.id limit 1)
            union all
            (select h.flow_id, h.id, h.created_at from history h
             where h.flow_id is not null and (h.flow_id, h.id) >= (p_flow, '') order by h.flow_id, h.id limit 1)) as x
         where x.flow_id = p_flow order by x.id limit 1),
        (select coalesce(x.created_at, 0) from (
            (select j.flow_id, j.id, j.created_at from jobs j
             where j.flow_id is not null and (j.flow_id, j.id) <= (p_flow, behind_all())
             order by j.flow_id desc, j.id desc limit 1)
            union all
            (select h.flow_id, h.id, h.created_at from history h
             where h.flow_id is not null and (h.flow_id, h.id) <= (p_flow, behind_all())
             order by h.flow_id desc, h.id desc limit 1)) as x
         where x.flow_id = p_flow order by x.id desc limit 1)];
end
$body$;
