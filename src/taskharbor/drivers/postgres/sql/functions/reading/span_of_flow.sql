-- When the first and the last job of a flow, in the order of ids, were created.
-- Compared and ordered by both columns, so that only the index of flows fits, whatever the planner takes for small.
create or replace function span_of_flow(p_flow text)
returns bigint[] language plpgsql stable as $body$
begin
    return array[
        (select coalesce(x.created_at, 0) from (
            select r.flow_id, r.created_at from records r
            where r.flow_id is not null and (r.flow_id, r.id) >= (p_flow, '') order by r.flow_id, r.id limit 1) as x
         where x.flow_id = p_flow),
        (select coalesce(x.created_at, 0) from (
            select r.flow_id, r.created_at from records r
            where r.flow_id is not null and (r.flow_id, r.id) <= (p_flow, behind_all())
            order by r.flow_id desc, r.id desc limit 1) as x
         where x.flow_id = p_flow)];
end
$body$;
