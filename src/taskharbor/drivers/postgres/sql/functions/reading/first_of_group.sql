-- The ids of the first jobs of a group that may run. A lease that had ended for a faster clock counts again for this one.
-- in: p_room: how many more may run; p_coming: see next_in_queue
create or replace function first_of_group(p_queue text, p_grp text, p_now bigint, p_room integer, p_coming jsonb)
returns text[] language sql stable as $body$
    select array(
        select x.id from (
            (select j.id, j.due, j.seq from jobs j
             where j.queue = p_queue and j.grp = p_grp and j.state in (@queued@, @expired@) and j.wake <= p_now
             order by j.due, j.seq limit p_room)
            union all
            select c.id, c.due, c.seq from jsonb_to_recordset(p_coming) as c(id text, grp text, due bigint, seq bigint)
            where c.grp = p_grp) as x
        order by x.due, x.seq
        limit greatest(p_room - (
            select count(*) from jobs h where h.queue = p_queue and h.grp = p_grp and h.state in (@queued@, @expired@)
            and h.due > p_now and h.wake > p_now and h.token is not null), 0));
$body$;
