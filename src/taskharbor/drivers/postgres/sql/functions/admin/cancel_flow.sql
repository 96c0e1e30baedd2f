-- Cancel a slice of the unfinished jobs of a flow. With the first slice, note that the flow is cancelled.
-- in:  the flow; the time; the id behind which to go on, '' for the first slice
-- out: how many were cancelled; how many more another call has locked: the driver calls again for these; the id behind
--      which to go on, null if that was all
-- locks: the flow, alone (see share_flows): a call that stores into it has done so, or comes after; then as cancel. An open
--      call with more than 64 flows is not waited for: other large calls would queue up behind this one, whatever their flows
create or replace function cancel_flow(p_flow text, p_now bigint, p_after text, out changed integer, out locked integer, out last text)
language plpgsql @ours@ as $body$
declare
    ids text[];
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
    if p_after = '' then
        if not exists (select from records r where r.flow_id = p_flow) then
            return;
        end if;
        insert into flows (flow_id) values (p_flow) on conflict do nothing;
    end if;
    ids := array(select j.id from jobs j where j.flow_id = p_flow and j.id > p_after collate "C"
                 and j.state between @blocked@ and @expired@ order by j.id limit @most_cancelled@);
    if cardinality(ids) = @most_cancelled@ then
        last := ids[cardinality(ids)];
    end if;
    results := cancel(to_json(ids)::text, p_now, 'flow cancelled', null);
    select count(*) filter (where r is null), count(*) filter (where r = 'locked') into changed, locked
    from unnest(results) as r;
end
$body$;
