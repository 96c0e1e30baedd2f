-- The flow before or behind another one (null: the last or first of all), in the order of ids; null if there is none.
create or replace function next_flow(p_here text, p_newest boolean)
returns text language plpgsql stable as $body$
begin
    if p_newest then
        return (select max(x.flow_id collate "C") from (
            (select j.flow_id from jobs j where j.flow_id is not null and j.flow_id < coalesce(p_here, behind_all())
             order by j.flow_id desc limit 1)
            union all
            (select h.flow_id from history h where h.flow_id is not null and h.flow_id < coalesce(p_here, behind_all())
             order by h.flow_id desc limit 1)) as x);
    end if;
    return (select min(x.flow_id collate "C") from (
        (select j.flow_id from jobs j where j.flow_id is not null and j.flow_id > coalesce(p_here, '')
         order by j.flow_id limit 1)
        union all
        (select h.flow_id from history h where h.flow_id is not null and h.flow_id > coalesce(p_here, '')
         order by h.flow_id limit 1)) as x);
end
$body$;
