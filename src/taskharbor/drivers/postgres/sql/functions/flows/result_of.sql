-- The result of a job that is done, or of the last job that it was handed over to.
-- out: one row; none if the job is unknown or not done, or if the one that took its place is
create or replace function result_of(p_id text)
returns table (result bytea)
language plpgsql stable @ours@ as $body$
declare
    next_id text := p_id;
    here record;
begin
    for turn in 1..10000 loop
        select r.state, r.result, r.handed_to into here from records r where r.id = next_id;
        exit when not found or here.handed_to is null;
        next_id := here.handed_to;
    end loop;
    if here.state = @done@ and here.handed_to is null then
        return query select here.result;
    end if;
end
$body$;
