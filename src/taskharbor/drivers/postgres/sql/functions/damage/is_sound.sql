-- Whether a reserve may hand a record out, as far as each row is checked: no value that would fail one of our statements,
-- no number that no client can have stored. The driver checks what few records have (a key, dependencies, metadata, …)
-- and calls set_reserved_aside.
create or replace function is_sound(j jobs)
returns boolean language sql immutable as $body$
    select j.type <> '' and j.payload is not null and j.attempts >= 0 and j.max_attempts >= 0
           and j.deliveries >= 0 and j.deliveries < 2147483647 and j.lost >= 0 and j.lost < 2147483647
           and j.created_at >= 0 and j.created_at <= 253402300799999999
           and (j.run_at is null or j.run_at >= 0 and j.run_at <= 253402300799999999)
           and (j.timeout is null or j.timeout >= 1000 and j.timeout <= 2147483647000);
$body$;
