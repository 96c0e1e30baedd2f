-- Cancel the unfinished jobs of a flow, and note that the flow is cancelled.
-- out: how many were cancelled, and how many more another call has locked: the driver calls again for these
-- locks: the flow, alone (see lock_flow): a call that stores into it has done so, or comes after; then as cancel
create or replace function cancel_flow(p_flow text, p_now bigint, out cancelled integer, out locked integer)
language plpgsql set search_path = @schema@, pg_temp set jit = off set enable_seqscan = off as $body$
declare
    results text[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then perform refuse_isolation(); end if;
    cancelled := 0;
    locked := 0;
    if not lock_flow(p_flow) then
        locked := 1;
        return;
    end if;
    if not exists (select from jobs j where j.flow_id = p_flow)
       and not exists (select from history h where h.flow_id = p_flow) then
        return;
    end if;
    insert into flows (flow_id) values (p_flow) on conflict do nothing;
    results := cancel(coalesce((select json_agg(j.id order by j.id)::text from jobs j where j.flow_id = p_flow
                                and j.state between @blocked@ and @expired@), '[]'), p_now, 'flow cancelled', null);
    select count(*) filter (where r is null), count(*) filter (where r = 'locked') into cancelled, locked
    from unnest(results) as r;
end
$body$;
