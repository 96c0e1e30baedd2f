-- Whether an unfinished job depends on a job, without counting them.
create or replace function has_dependents(p_id text)
returns boolean language sql stable as $body$
    select exists (select from edges e where e.dependency = p_id
    and (exists (select from jobs j where j.id = e.dependent)
         or exists (select from history h where h.id = e.dependent and h.state + 0 not in (@done@, @cancelled@))));
$body$;
