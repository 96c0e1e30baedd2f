-- New jobs of a flow that was cancelled are cancelled at once.
create or replace function cancel_in_cancelled_flows(p_flows text, p_fresh text[], p_now bigint)
returns void language plpgsql as $body$
declare
    cancelled text[] := array(select f.flow_id from flows f
                              where f.flow_id = any(array(select json_array_elements_text(p_flows::json))));
begin
    if cancelled <> '{}' then
        with gone as (
            delete from jobs j using unnest(p_fresh) as x(id)
            where j.id = x.id collate "C" and coalesce(j.flow_id, '') = any(cancelled) returning j.*
        )
        insert into history select (x).* from (
            select set_finished(gone, @cancelled@::smallint, 'flow cancelled', p_now) as x from gone) as y;
    end if;
end
$body$;
