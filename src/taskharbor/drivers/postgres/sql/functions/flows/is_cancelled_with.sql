-- Whether a job of this flow was cancelled because one that it depends on was, and no such job of the flow is cancelled any
-- more. The ids lead, and no index of flows: those may be large.
create or replace function is_cancelled_with(j history, p_flow text)
returns boolean language plpgsql stable as $body$
begin
    return j.state = @cancelled@ and j.reason = '@with_it@' and j.flow_id = p_flow and not exists (
        select from history d
        where d.id = any(array(select e.dependency from edges e where e.dependent = j.id))
          and d.state = @cancelled@ and d.flow_id || '' = p_flow);
end
$body$;
