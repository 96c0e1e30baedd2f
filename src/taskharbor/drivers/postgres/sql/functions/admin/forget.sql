-- Delete what belongs to deleted records: edges, keys, steps, and the note that a flow was cancelled with its last record.
-- locks: edges and flows, each in their order: two calls that forget neighbours never deadlock
create or replace function forget(p_deleted deleted_job[])
returns void language plpgsql as $body$
declare
    ids text[] := array(select d.id from unnest(p_deleted) as d);
    flow text;
begin
    if ids = '{}' then
        return;
    end if;
    delete from edges e where e.ctid = any(array(
        select x.ctid from edges x
        where x.ctid = any(array(select a.ctid from edges a where a.dependency = any(ids)
                                 union select b.ctid from edges b where b.dependent = any(ids)))
        order by x.dependency, x.dependent for update));
    delete from keys k where k.ctid = any(array(
        select y.place from unnest(p_deleted) as x,
            lateral (select z.ctid as place from keys z
                     where z.queue = x.queue and z.key = x.key and z.id = x.id limit 1) as y));
    delete from steps s where s.ctid = any(array(
        select y.place from unnest(ids) as x(id), lateral (select z.ctid as place from steps z where z.id = x.id) as y));
    for flow in select distinct d.flow_id from unnest(p_deleted) as d
                where d.flow_id is not null and exists (select from flows y where y.flow_id = d.flow_id)
                order by 1 loop
        if not exists (select from records r where r.flow_id = flow) then
            delete from flows f where f.flow_id = flow;
        end if;
    end loop;
end
$body$;
