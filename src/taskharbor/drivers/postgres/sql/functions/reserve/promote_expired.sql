-- Move jobs whose lease has ended back into the line of their queue. out: the changes for their groups
create or replace function promote_expired(p_queue text, p_now bigint, p_due_after bigint)
returns group_change[] language plpgsql as $body$
declare
    changes group_change[] := '{}';
    more group_change[];
    number integer;
begin
    for turn in 1..10 loop
        with up as (
            update jobs j set state = @expired@
            where j.id = any(array(select x.id from jobs x where x.queue = p_queue and x.state = @leased@
                                   and x.wake <= p_now and x.wake > p_due_after
                                   order by x.wake limit 1000 for no key update skip locked))
            returning j.queue, j.grp
        )
        select count(*), array_agg(row(up.queue, up.grp, -1, 1)::group_change) filter (where up.grp is not null)
        into number, more from up;
        changes := changes || more;
        exit when number < 1000;
    end loop;
    return changes;
end
$body$;
