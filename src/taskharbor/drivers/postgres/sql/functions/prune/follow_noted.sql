-- Go on where a cancel or a requeue has stopped: let up to p_limit jobs follow. out: how many did
-- locks: the rows of `followed` that no other call has locked, then see follow
create or replace function follow_noted(p_now bigint, p_limit integer)
returns integer language plpgsql as $body$
declare
    ids text[];
begin
    with noted as (
        delete from followed f where f.ctid = any(array(select x.ctid from followed x limit p_limit for update skip locked))
        returning f.id
    )
    select array_agg(noted.id) into ids from noted;
    return case when ids is null then 0 else follow(ids, p_now, p_limit) end;
end
$body$;
