-- What lost_by says of an execution that ended without an outcome. `j` is the job as that execution left it.
create or replace function loss_of(j jobs, p_ended bigint)
returns text language sql stable as $body$
    select json_build_array(j.deliveries, j.worker, j.began_at, p_ended)::text;
$body$;
