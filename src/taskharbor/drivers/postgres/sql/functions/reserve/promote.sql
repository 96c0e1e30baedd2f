-- Bring into the line what is due: scheduled jobs, grouped ones that no reserve has counted yet, expired leases.
-- Each job is promoted at most once between two reservations; a burst of more than 10,000 takes several calls.
-- All queues of a call in the order of names, and after that all their groups at once: so two calls never deadlock.
create or replace function promote(p_queues text[], p_now bigint, p_due_after bigint)
returns void language plpgsql as $body$
declare
    one text;
    changes group_change[] := '{}';
begin
    foreach one in array p_queues loop
        changes := changes || promote_scheduled(one, p_now, p_due_after);
        changes := changes || promote_expired(one, p_now, p_due_after);
    end loop;
    changes := changes || set_unknown_states_aside(p_now);
    changes := changes || apply_group_limits(p_queues);
    if cardinality(changes) > 0 then
        perform regroup(changes);
    end if;
end
$body$;
