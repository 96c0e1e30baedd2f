-- Notify the processes that wait for one of these queues. The server sends notifications at commit.
-- A waiter is a row in `waiting`. Deleting the row coalesces hints: the next enqueue finds no waiter and sends nothing.
-- in: the queues; p_callers: this is the caller's own transaction, which may stay open for long. Then the rows stay, so
--     that it locks none. As NOTIFY holds a lock of the whole server until the commit is flushed, such transactions
--     notify at most every 50 ms, for any queue: the sequence `hinted_at` says when, and no transaction locks it. Nothing
--     is sent if the transaction is to be prepared (the server forbids NOTIFY there)
-- locks: rows of `waiting` that no other call has locked
create or replace function send_hints(p_queues text[], p_callers boolean)
returns void language plpgsql as $body$
declare
    now_ms constant bigint := extract(epoch from clock_timestamp()) * 1000;
    sent bigint;
begin
    if not p_callers then
        with gone as (
            delete from waiting w
            where w.ctid = any(array(select x.ctid from waiting x where x.queue = any(p_queues) for update skip locked))
            returning w.queue
        )
        select count(pg_notify('taskharbor:' || md5(current_schema()), x.queue)) into sent
        from (select distinct g.queue from gone g) as x;
    elsif current_setting('taskharbor.hints', true) is distinct from 'off'
          and (select abs(now_ms - h.last_value) >= 50 from hinted_at h) then
        perform setval('hinted_at', now_ms);
        perform pg_notify('taskharbor:' || md5(current_schema()), '');
    end if;
end
$body$;
