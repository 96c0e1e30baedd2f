-- Notify the processes that wait for one of these queues. The server sends notifications at commit.
-- A waiter is a row in `waiting`. Deleting the row coalesces hints: the next enqueue finds no waiter and sends nothing.
-- in: the queues; p_callers: this is the caller's own transaction, which may stay open for long. Then the rows stay, so
--     that it locks none, and nothing is sent if the transaction is to be prepared (the server forbids NOTIFY there)
-- locks: rows of `waiting` that no other call has locked
create or replace function send_hints(p_queues text[], p_callers boolean)
returns void language plpgsql as $body$
declare
    sent bigint;
begin
    if p_callers and current_setting('taskharbor.hints', true) = 'off' then
        return;
    end if;
    if p_callers then
        select count(pg_notify('taskharbor:' || md5(current_schema()), x.queue)) into sent
        from (select distinct w.queue from waiting w where w.queue = any(p_queues)) as x;
    else
        with gone as (
            delete from waiting w
            where w.ctid = any(array(select x.ctid from waiting x where x.queue = any(p_queues) for update skip locked))
            returning w.queue
        )
        select count(pg_notify('taskharbor:' || md5(current_schema()), x.queue)) into sent
        from (select distinct g.queue from gone g) as x;
    end if;
end
$body$;
