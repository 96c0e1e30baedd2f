-- Wait until this call has the flow's lock alone (see share_flows).
-- out: false if an open call with more than 64 flows may have stored into it. That call is not waited for: other large
--      calls would queue up behind this one, whatever their flows
create or replace function lock_flow(p_flow text)
returns boolean language plpgsql as $body$
begin
    perform pg_advisory_xact_lock(1952540008, hashtext(current_schema() || '.' || p_flow));
    return pg_try_advisory_xact_lock(1952540010, hashtext(current_schema()));
end
$body$;
