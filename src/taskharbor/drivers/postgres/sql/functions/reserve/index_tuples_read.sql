-- How many entries of the indexes that a reserve scans this transaction has read so far, dead ones included. Nothing else
-- tells a statement how many dead ones it passed. With track_counts off it is always 0: reserves scan from the head.
create or replace function index_tuples_read()
returns bigint language sql as $body$
    select pg_stat_get_xact_tuples_returned('jobs_line'::regclass)
           + pg_stat_get_xact_tuples_returned('jobs_leases'::regclass)
           + pg_stat_get_xact_tuples_returned('jobs_calendar'::regclass);
$body$;
