-- The beginning of the next flow that has finished jobs, or null.
create or replace function flow_after(p_flow text)
returns sweep language plpgsql as $body$
declare
    next_flow text;
begin
    select coalesce(h.flow_id, '') into next_flow from history h
    where h.state in (@done@, @cancelled@) and coalesce(h.flow_id, '') > p_flow collate "C"
    order by coalesce(h.flow_id, ''), h.finished_at, h.id limit 1;
    if not found then
        return null;
    end if;
    return (true, next_flow, '-9223372036854775808', '')::sweep;
end
$body$;
