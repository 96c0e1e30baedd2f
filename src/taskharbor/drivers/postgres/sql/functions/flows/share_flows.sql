-- Take the shared locks of flows, before jobs are stored into them.
-- There is one advisory lock for each flow. A call that cancels or forgets a flow takes it alone (cancel_flow): it then knows
-- all jobs that were stored into the flow, and later ones see what it did. The schema is part of each key: two stores in
-- one database do not share locks. The server's lock table has room for a few thousand locks: a call with more than 64
-- flows shares a single lock that stands for all of them.
create or replace function share_flows(p_flows text[])
returns void language plpgsql as $body$
begin
    if cardinality(p_flows) > 64 then
        perform pg_advisory_xact_lock_shared(1952540010, hashtext(current_schema()));
    else
        perform pg_advisory_xact_lock_shared(1952540008, x.key)
        from (select distinct hashtext(current_schema() || '.' || f) as key from unnest(p_flows) as f order by 1) as x;
    end if;
end
$body$;
