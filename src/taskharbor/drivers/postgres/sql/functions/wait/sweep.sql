-- Notify the waiters of each queue that has work: jobs became due, leases ended, or a hint was lost. For one waiter of the
-- store, once a second.
create or replace function sweep()
returns void language plpgsql @ours@ @one_plan@ set enable_bitmapscan = off as $body$
declare
    now_us constant bigint := extract(epoch from clock_timestamp()) * 1000000;
    one text;
begin
    perform set_config('synchronous_commit', 'off', true);
    for one in select distinct w.queue from waiting w loop
        if may_have_work(one, now_us) then
            perform pg_notify('taskharbor:' || md5(current_schema()), one);
        end if;
    end loop;
end
$body$;
