-- Bring into the line what is due: expired leases, scheduled jobs, grouped ones that no reserve has counted yet.
-- At most 10,000 jobs a call, in fair shares of its queues: a larger burst takes several calls, and each one makes
-- progress. Each job is promoted at most once between two reservations.
-- in: the queues in the order of their turns; out: how many jobs were promoted
-- locks: jobs that no other call has locked, and after that all their groups at once: so two calls never deadlock
create or replace function promote(p_queues text[], p_now bigint, p_due_after bigint)
returns integer language plpgsql as $body$
declare
    left_over integer := 10000;
    share integer;
    one text;
    changes group_change[] := '{}';
    more group_change[];
    number integer;
begin
    for n in reverse cardinality(p_queues)..1 loop  -- n queues are left to share what is left
        one := p_queues[cardinality(p_queues) - n + 1];
        share := (left_over + n - 1) / n;
        with up as (
            update jobs j set state = @expired@
            where j.id = any(array(select x.id from jobs x where x.queue = one and x.state = @leased@
                                   and x.wake <= p_now and x.wake > p_due_after
                                   order by x.wake limit share for no key update skip locked))
            returning j.queue, j.grp
        )
        select count(*), array_agg(row(up.queue, up.grp, -1, 1)::group_change) filter (where up.grp is not null)
        into number, more from up;
        changes := changes || more;
        left_over := left_over - number;
        with up as (
            update jobs j set state = @queued@
            where j.id = any(array(select x.id from jobs x where x.queue = one and x.state = @scheduled@
                                   and x.wake <= p_now and (x.wake <= 0 or x.wake > p_due_after)
                                   order by x.wake limit share - number for no key update skip locked))
            returning j.queue, j.grp
        )
        select count(*), array_agg(row(up.queue, up.grp, 0, 1)::group_change) filter (where up.grp is not null)
        into number, more from up;
        changes := changes || more;
        left_over := left_over - number;
        exit when left_over < 1;
    end loop;
    changes := changes || set_unknown_states_aside(p_now);
    changes := changes || apply_group_limits(p_queues);
    if cardinality(changes) > 0 then
        perform regroup(changes);
    end if;
    return 10000 - left_over;
end
$body$;
