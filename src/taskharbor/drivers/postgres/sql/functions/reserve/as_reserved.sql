-- A row of `jobs` as a reserved_job. The planner inlines it: `(as_reserved(j)).*` costs what the list of columns costs,
-- as long as types and collations of reserved_job are those of the columns (tests/drivers/test_postgres_plans.py).
create or replace function as_reserved(j jobs)
returns reserved_job language sql stable as $body$
    select row(j.id, j.queue, j.type, j.payload, j.run_at, j.timeout, j.priority, j.attempts, j.max_attempts,
               j.deliveries, j.lost, j.created_at, rare_columns(j), null::text, j.token)::reserved_job;
$body$;
