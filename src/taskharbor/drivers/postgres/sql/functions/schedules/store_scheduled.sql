-- Store the jobs of schedules as enqueue does. Those of all changes at once: then it takes its locks in one order.
-- in: p_jobs as in change_schedules; the positions of the changes that were made; the time
create or replace function store_scheduled(p_jobs text, p_changed integer[], p_now bigint)
returns void language plpgsql as $body$
declare
    jobs_once json;  -- each id once: what the first change says
    group_limits json;
    queue_names text[];
begin
    select json_agg(x.job), array_agg(distinct x.job ->> 'queue') into jobs_once, queue_names
    from (
        select distinct on (j.job ->> 'id') j.job
        from json_array_elements(p_jobs::json) with ordinality as c(jobs, n),
             json_array_elements(c.jobs) with ordinality as j(job, n)
        where c.n - 1 = any(p_changed)
        order by j.job ->> 'id', c.n, j.n) as x;
    if jobs_once is not null then
        select json_agg(json_build_object('o', g.o, 'id', g.id, 'queue', g.queue, 'grp', g.grp, 'lim', g.group_limit))
        into group_limits
        from json_to_recordset(jobs_once) as g(o integer, id text, queue text, grp text, group_limit integer)
        where g.grp is not null and g.group_limit > 0;
        perform from store(jobs_once::text, null, null, group_limits::text, null, queue_names, p_now, false);
    end if;
end
$body$;
