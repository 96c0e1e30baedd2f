-- A lock for each flow: whoever cancels one, or forgets it, knows all that was stored into it; what comes later sees that.
-- Keys contain the schema: two stores in one database have nothing to do with each other.
-- Who stores shares the locks of all flows of the call. Locks stand in a table of the server's that has room for some
-- thousands: a call with very many flows shares one lock that stands for all.
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

-- Wait until the flow is ours alone. False: an open call with very many flows may hold it as well; that one is not waited
-- for, because others like it would have to stand behind us, whatever their flows.
create or replace function lock_flow(p_flow text)
returns boolean language plpgsql as $body$
begin
    perform pg_advisory_xact_lock(1952540008, hashtext(current_schema() || '.' || p_flow));
    return pg_try_advisory_xact_lock(1952540010, hashtext(current_schema()));
end
$body$;
