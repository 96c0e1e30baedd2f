-- Whether a job of the flow is neither done nor cancelled.
create or replace function is_held(p_flow text)
returns boolean language plpgsql stable as $body$
begin
    return exists (select from jobs j where j.flow_id = p_flow)
           or exists (select from history h where coalesce(h.flow_id, '') = p_flow and h.state + 0 = @dead@);
end
$body$;
