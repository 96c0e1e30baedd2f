-- The flow before or behind another one (null: the last or first of all), in the order of ids; null if there is none.
create or replace function next_flow(p_here text, p_newest boolean)
returns text language plpgsql stable as $body$
begin
    if p_newest then
        return (select r.flow_id from records r where r.flow_id is not null and r.flow_id < coalesce(p_here, behind_all())
                order by r.flow_id desc limit 1);
    end if;
    return (select r.flow_id from records r where r.flow_id is not null and r.flow_id > coalesce(p_here, '')
            order by r.flow_id limit 1);
end
$body$;
