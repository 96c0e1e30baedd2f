-- How many unfinished jobs (neither done nor cancelled) depend on a job. in: its id; null, or the number at which to stop
create or replace function count_dependents(p_id text, p_most integer)
returns bigint language sql stable as $body$
    select count(*) from (
        select from edges e where e.dependency = p_id
        and (exists (select from jobs j where j.id = e.dependent)
             or exists (select from history h where h.id = e.dependent and h.state + 0 not in (@done@, @cancelled@)))
        limit p_most) as x;
$body$;
