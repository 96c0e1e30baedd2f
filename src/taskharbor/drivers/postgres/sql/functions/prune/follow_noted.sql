-- Go on where a cancel or a requeue has stopped: let up to p_limit jobs follow. out: how many did; fewer, if that was all,
-- or if other calls have locked the rest
-- locks: the rows of `followed` that no other call has locked, then see follow
create or replace function follow_noted(p_now bigint, p_limit integer)
returns integer language plpgsql as $body$
declare
    ids text[];
    n integer := 0;
begin
    for turn in 1..10 loop  -- a job may be noted again: another call has locked what is behind it
        with noted as (
            delete from followed f where f.ctid = any(array(select x.ctid from followed x limit p_limit for update skip locked))
            returning f.id
        )
        select array_agg(noted.id) into ids from noted;
        exit when ids is null;
        n := n + follow(ids, p_now, p_limit - n);
        exit when n >= p_limit;
    end loop;
    return n;
end
$body$;
