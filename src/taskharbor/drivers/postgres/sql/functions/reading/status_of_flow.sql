-- The status of a flow without records in an unknown state.
-- The expressions are those of the indexes: the planner can choose no other, and no lookup reads more than one record.
create or replace function status_of_flow(p_flow text)
returns text language plpgsql stable as $body$
begin
    if exists (select from history h where coalesce(h.flow_id, '') = p_flow and h.state + 0 = @dead@) then
        return 'failed';
    elsif exists (select from history h where coalesce(h.flow_id, '') = p_flow and h.state + 0 = @cancelled@
                  and h.flow_id is not null) then
        return 'cancelled';
    elsif exists (select from jobs j where j.flow_id = p_flow) then
        return 'running';
    end if;
    return 'succeeded';
end
$body$;
