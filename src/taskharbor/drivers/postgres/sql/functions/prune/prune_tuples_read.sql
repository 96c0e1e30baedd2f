-- How many entries of the indexes that a prune scans this transaction has read so far, dead ones included.
create or replace function prune_tuples_read()
returns bigint language sql as $body$
    select pg_stat_get_xact_tuples_returned('history_queue'::regclass)
           + pg_stat_get_xact_tuples_returned('history_held'::regclass)
           + pg_stat_get_xact_tuples_returned('jobs_flow'::regclass);
$body$;
