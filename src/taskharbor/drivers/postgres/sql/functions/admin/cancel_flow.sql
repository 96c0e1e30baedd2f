-- Cancel the unfinished jobs of a flow, and note that the flow is cancelled.
-- out: how many were cancelled, and how many more another call has locked: the driver calls again for these
-- locks: the flow, alone (see share_flows): a call that stores into it has done so, or comes after; then as cancel. An open
--      call with more than 64 flows is not waited for: other large calls would queue up behind this one, whatever their flows
create or replace function cancel_flow(p_flow text, p_now bigint, out changed integer, out locked integer)
language plpgsql @ours@ as $body$
declare
    results text[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then perform refuse_isolation(); end if;
    changed := 0;
    locked := 0;
    perform pg_advisory_xact_lock(1952540008, hashtext(current_schema() || '.' || p_flow));
    if not pg_try_advisory_xact_lock(1952540010, hashtext(current_schema())) then
        locked := 1;
        return;
    end if;
    if not exists (select from records r where r.flow_id = p_flow) then
        return;
    end if;
    insert into flows (flow_id) values (p_flow) on conflict do nothing;
    results := cancel(coalesce((select json_agg(j.id order by j.id)::text from jobs j where j.flow_id = p_flow
                                and j.state between @blocked@ and @expired@), '[]'), p_now, 'flow cancelled', null);
    select count(*) filter (where r is null), count(*) filter (where r = 'locked') into changed, locked
    from unnest(results) as r;
end
$body$;
