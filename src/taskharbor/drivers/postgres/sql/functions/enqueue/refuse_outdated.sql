-- In a caller's transaction with an older snapshot, what was committed since is invisible: jobs that finished, keys whose
-- records were deleted, flows that were cancelled. The indexes have it: inserting or locking the same raises a serialization
-- failure then, as it would for a row of the caller's own, instead of storing a done job again.
-- in: the ids of new jobs; p_keys and p_flows as in enqueue
create or replace function refuse_outdated(p_ids text[], p_keys text, p_flows text)
returns void language plpgsql as $body$
declare
    put text[];
begin
    insert into history (id, queue, state) select i, '', @blocked@ from unnest(p_ids) as i on conflict do nothing;
    delete from history h where h.id = any(p_ids) and h.state + 0 = @blocked@;
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
