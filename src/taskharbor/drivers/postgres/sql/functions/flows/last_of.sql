-- The job that now stands for another one: follow its handovers, as far as the successors are still stored.
-- in: an id; out: the id of the last one, null if the job is unknown
-- locks: each record on the way in the weakest mode: it can be reserved and extended, not settled, until this commits
create or replace function last_of(p_id text)
returns text language plpgsql as $body$
declare
    here text := null;
    next_id text := p_id;
    further text;
begin
    for turn in 1..10000 loop
        exit when next_id is null;
        perform from jobs j where j.id = next_id for key share;
        if found then
            return next_id;
        end if;
        select h.handed_to into further from history h where h.id = next_id for key share;
        if not found then
            perform from jobs j where j.id = next_id for key share;  -- it was requeued between the two reads
            return case when found then next_id else here end;
        end if;
        here := next_id;
        next_id := further;
    end loop;
    return here;
end
$body$;
