-- How many unfinished jobs (neither done nor cancelled) depend on a job.
create or replace function count_dependents(p_id text)
returns bigint language sql stable as $body$
    select count(*) from edges e where e.dependency = p_id
    and (exists (select from jobs j where j.id = e.dependent)
         or exists (select from history h where h.id = e.dependent and h.state + 0 not in (@done@, @cancelled@)));
$body$;
