-- Cancel new jobs that can never run, and what is behind them.
create or replace function strand(p_ids text[], p_now bigint)
returns void language plpgsql as $body$
begin
    with gone as (delete from jobs j where j.id = any(p_ids) returning j.*)
    insert into history select (x).* from (
        select set_finished(gone, @cancelled@::smallint, '@with_it@', p_now) as x from gone) as y;
    perform follow(p_ids, p_now, @most_followed@);
end
$body$;
