-- Whether a job that was cancelled because one that it depends on was stays so: another such job of the flow is cancelled.
-- locks: that one, in the weakest mode: it is not requeued before this commits, and sees then what has come back. One that
--     another call has locked does not count: it may be coming back, and would not see it
create or replace function stays_cancelled(p_id text, p_flow text)
returns boolean language plpgsql as $body$
begin
    perform from history d
    where d.id = any(array(select e.dependency from edges e where e.dependent = p_id))
      and d.state = @cancelled@ and d.flow_id || '' = p_flow
    limit 1 for key share skip locked;
    return found;
end
$body$;
