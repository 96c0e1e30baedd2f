-- The beginning of the next flow that has finished jobs: of the same queue and state, or of the next one; null if there is
-- none. Jobs of no flow come first in each.
create or replace function flow_after(p_here prune_place)
returns prune_place language plpgsql as $body$
declare
    here prune_place := p_here;
begin
    loop
        select h.queue, h.state, coalesce(h.flow_id, '') into here.queue, here.state, here.flow from history h
        where h.keep_for is null and (h.queue, h.state, coalesce(h.flow_id, '')) > (here.queue, here.state, here.flow)
        order by h.queue, h.state, coalesce(h.flow_id, ''), h.finished_at, h.id limit 1;
        if not found then
            return null;
        end if;
        exit when here.state in (@done@, @cancelled@);
        here.flow := behind_all();  -- skip what is dead, or in an unknown state
    end loop;
    here.finished_at := '-9223372036854775808';
    here.id := '';
    return here;
end
$body$;
