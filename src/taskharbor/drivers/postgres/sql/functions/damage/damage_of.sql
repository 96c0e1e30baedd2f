-- Which damage of a record would stop a worker, or null.
create or replace function damage_of(j jobs)
returns text language sql immutable as $body$
    select case when coalesce(j.type, '') = '' then 'type is missing'
                when j.payload is null then 'payload is missing'
                when (j.attempts >= 0) is not true then 'attempts is not a number'
                when (j.max_attempts >= 0) is not true then 'max_attempts is not a number'
                when (j.deliveries >= 0 and j.deliveries < 2147483647) is not true then 'deliveries is not a number'
                when (j.lost >= 0 and j.lost < 2147483647) is not true then 'lost is not a number'
                when (j.created_at between 0 and 253402300799999999) is not true then 'created_at is not a moment'
                when j.run_at not between 0 and 253402300799999999 then 'run_at is not a moment'
                when j.timeout not between 1000 and 2147483647000 then 'timeout is out of bounds'
                when j.state not between @blocked@ and @cancelled@ then 'unknown state' end;
$body$;
