-- The same as refuse_unseen, for keys whose records were deleted since, and for flows that were cancelled since.
create or replace function refuse_outdated(p_keys text, p_flows text)
returns void language plpgsql as $body$
declare
    put text[];
begin
    if p_keys is not null then
        perform from keys k
        where (k.queue, k.key) in (select g.queue collate "C", decode(g.key, 'base64')
                                   from json_to_recordset(p_keys::json) as g(queue text, key text))
        order by k.queue, k.key for key share;
    end if;
    if p_flows is not null then
        with added as (
            insert into flows (flow_id) select distinct f from json_array_elements_text(p_flows::json) as f order by 1
            on conflict do nothing returning flow_id
        )
        select array_agg(a.flow_id) into put from added a;
        delete from flows f where f.flow_id = any(put);
    end if;
end
$body$;
