-- Send a hint to the processes that wait for one of these queues: work may have arrived. Nobody waits: one index lookup.
-- in: the queues; p_callers: this runs in the caller's own transaction, see send_hints
create or replace function hint(p_queues text[], p_callers boolean)
returns void language plpgsql as $body$
begin
    if exists (select from waiting w where w.queue = any(p_queues)) then
        perform send_hints(p_queues, p_callers);
    end if;
end
$body$;
