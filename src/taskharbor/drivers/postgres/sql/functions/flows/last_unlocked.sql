-- The same as last_of, without waiting.
-- out: locked: the id of a record that another call is ending at this moment, or null; last: the id of the last one
create or replace function last_unlocked(p_id text, out last text, out locked text)
language plpgsql as $body$
declare
    next_id text := p_id;
    further text;
begin
    last := p_id;
    for turn in 1..10000 loop
        exit when next_id is null;
        perform from jobs j where j.id = next_id for key share skip locked;
        if found then
            last := next_id;
            return;
        end if;
        select h.handed_to into further from history h where h.id = next_id for key share skip locked;
        if not found then
            -- It is locked, or it moved from one table to the other between the two reads.
            locked := (select r.id from records r where r.id = next_id);
            return;
        end if;
        last := next_id;
        next_id := further;
    end loop;
end
$body$;
