-- Store the limits that new jobs set for their groups; the first job of the call decides, and a stored limit stays.
create or replace function store_group_limits(p_group_limits text, p_fresh text[])
returns void language plpgsql as $body$
begin
    insert into group_limits (queue, grp, lim)
    select distinct on (g.queue, g.grp) g.queue, g.grp, g.lim
    from json_to_recordset(p_group_limits::json) as g(o integer, id text, queue text, grp text, lim integer)
    where exists (select from unnest(p_fresh) as f where f = g.id)
    order by g.queue, g.grp, g.o
    on conflict do nothing;
end
$body$;
