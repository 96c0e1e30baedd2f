-- Cancel new jobs that depend on a cancelled job of their flow, and what is behind them.
-- in: the ids of the new jobs; the cancelled jobs that some of them depend on; the time
create or replace function strand(p_fresh text[], p_cancelled text[], p_now bigint)
returns void language plpgsql as $body$
declare
    stranded text[];
begin
    if p_cancelled <> '{}' then
        stranded := array(select f from unnest(p_fresh) as f where is_stranded(f));
        with gone as (delete from jobs j where j.id = any(stranded) returning j.*)
        insert into history select (x).* from (
            select set_finished(gone, @cancelled@::smallint, '@with_it@', p_now) as x from gone) as y;
        perform follow(stranded, p_now, @most_followed@);
    end if;
end
$body$;
