-- A spawned job, or the one that now stands for it, takes the place of a done one in the depends_on of its dependents.
-- in: the done job, the spawned one, the dependents (JSON array), the time
-- out: heir: the job that has the place now. If it is the done one, if another call has one `locked` on the way to it, or if
--      it would close a cycle (`refused` is the message), nothing was changed
-- locks: the records on the way to the heir that no other call has locked; then the dependents, in the order of ids; then
--     see follow: if the heir is cancelled, what waits for it is, too
create or replace function hand_over(p_old text, p_new text, p_dependents text, p_now bigint,
                                     out heir text, out locked text, out refused text)
language plpgsql @ours@ as $body$
declare
    base bigint := nextval('arrival') << 20;
    dependents text[] := array(select json_array_elements_text(p_dependents::json));
    met text;
    one record;
    n integer := 0;
    is_known boolean;
    is_done boolean;
    hinted text[] := '{}';
    stopped_flow text;
begin
    if current_setting('transaction_isolation') <> 'read committed' then perform refuse_isolation(); end if;
    select l.last, l.locked into heir, locked from last_unlocked(p_new) as l;
    if locked is not null or heir = p_old then
        return;
    end if;
    with recursive walk(id) as (
        select heir collate "C"
        union
        select d collate "C" from walk w join records r on r.id = w.id and r.state <> @done@, unnest(r.depends_on) as d
    )
    select w.id into met from walk w where w.id = any(dependents) limit 1;
    if met is not null then
        refused := format('handover: %s depends on %s, which would depend on it; remove one of the edges', heir, met);
        return;
    end if;
    is_done := exists (select from history h where h.id = heir and h.state + 0 = @done@);
    perform from jobs j where j.id = any(dependents) order by j.id for no key update;
    perform from history h where h.id = any(dependents) order by h.id for no key update;
    update history h set handed_to = heir where h.id = p_old;
    for one in select r.id, r.stored from records r where r.id = any(dependents) order by r.stored loop
        delete from edges e where e.dependency = p_old and e.dependent = one.id;
        continue when not found;
        insert into edges (dependency, dependent) values (heir, one.id) on conflict do nothing;
        is_known := not found;
        update history h set depends_on = array_replace(h.depends_on, p_old collate "C", heir collate "C")
        where h.id = one.id;
        update jobs j set depends_on = array_replace(j.depends_on, p_old collate "C", heir collate "C"),
            open = greatest(coalesce(j.open, 0)::bigint - case when is_known or is_done then 1 else 0 end, -1)
        where j.id = one.id;
        n := n + 1;
        update jobs j
        set state = first_state(j.grp, j.run_at, p_now),
            wake = coalesce(j.run_at, 0), due = greatest(coalesce(j.run_at, 0), p_now), seq = base + n
        where j.id = one.id and j.state = @blocked@ and j.open <= 0;
        if found then
            hinted := hinted || array(select j.queue from jobs j where j.id = one.id);
        end if;
    end loop;
    select h.flow_id into stopped_flow from history h where h.id = heir and h.state + 0 = @cancelled@;
    if stopped_flow is not null then
        dependents := array(select j.id from jobs j where j.id = any(dependents) and is_blocked_in(j, stopped_flow));
        perform strand(dependents, array[heir], p_now);
    end if;
    perform hint(hinted, false);
end
$body$;
