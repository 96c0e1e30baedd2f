-- Lock the same records as last_of, without waiting.
-- out: the id of a record that another call is ending at this moment, null if there is none
create or replace function locked_on_the_way(p_id text)
returns text language plpgsql as $body$
declare
    next_id text := p_id;
    further text;
begin
    for turn in 1..10000 loop
        exit when next_id is null;
        perform from jobs j where j.id = next_id for key share skip locked;
        exit when found;
        select h.handed_to into further from history h where h.id = next_id for key share skip locked;
        if not found then
            -- It is locked, or it moved from one table to the other between the two reads.
            return case when exists (select from records r where r.id = next_id) then next_id end;
        end if;
        next_id := further;
    end loop;
    return null;
end
$body$;
