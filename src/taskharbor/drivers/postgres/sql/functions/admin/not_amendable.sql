-- Why a job may not be amended, as amend returns it; null if it may.
create or replace function not_amendable(j jobs, c jsonb)
returns text language sql immutable as $body$
    select case when j.state = @done@ then 'done'
                when j.state in (@leased@, @expired@) then 'under a lease'
                when greatest(coalesce(j.deliveries, 0), 0) <> (c ->> 'deliveries')::integer
                     or greatest(coalesce(j.edits, 0), 0) <> (c ->> 'edits')::integer then 'amended' end;
$body$;
