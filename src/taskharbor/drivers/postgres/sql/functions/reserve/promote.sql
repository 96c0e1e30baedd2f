-- Bring into the line what is due: scheduled jobs, grouped ones that no reserve has counted yet, expired leases.
-- Each job is promoted at most once between two reservations; a burst of more than 10,000 takes several calls.
-- All queues of a call in the order of names, and after that all their groups at once: so two calls never deadlock.
create or replace function promote(p_queues text[], p_now bigint, p_due_after bigint)
returns void language plpgsql as $body$
declare
    one text;
    changes group_change[] := '{}';
    more group_change[];
    number integer;
begin
    foreach one in array p_queues loop
        for turn in 1..10 loop
            with up as (
                update jobs j set state = @queued@
                where j.id = any(array(select x.id from jobs x where x.queue = one and x.state = @scheduled@
                                       and x.wake <= p_now and (x.wake <= 0 or x.wake > p_due_after)
                                       order by x.wake limit 1000 for no key update skip locked))
                returning j.queue, j.grp
            )
            select count(*), array_agg(row(up.queue, up.grp, 0, 1)::group_change) filter (where up.grp is not null)
            into number, more from up;
            changes := changes || more;
            exit when number < 1000;
        end loop;
        for turn in 1..10 loop
            with up as (
                update jobs j set state = @expired@
                where j.id = any(array(select x.id from jobs x where x.queue = one and x.state = @leased@
                                       and x.wake <= p_now and x.wake > p_due_after
                                       order by x.wake limit 1000 for no key update skip locked))
                returning j.queue, j.grp
            )
            select count(*), array_agg(row(up.queue, up.grp, -1, 1)::group_change) filter (where up.grp is not null)
            into number, more from up;
            changes := changes || more;
            exit when number < 1000;
        end loop;
    end loop;
    changes := changes || set_unknown_states_aside(p_now);
    changes := changes || apply_group_limits(p_queues);
    if cardinality(changes) > 0 then
        perform regroup(changes);
    end if;
end
$body$;
