-- The state of a job with nothing to wait for but its time. A grouped one joins the line when a reserve counts it.
create or replace function first_state(p_grp text, p_run_at bigint, p_now bigint)
returns integer language sql immutable as $body$
    select case when p_grp is null and coalesce(p_run_at, 0) <= p_now then @queued@ else @scheduled@ end;
$body$;
