-- The jobs of a queue that come next, if it were not paused: null if more than p_looks are due that no reserve has brought
-- into line, or stand there too early. Else JSON: {"groups_next", "ungrouped": ids, "groups": [ids, …]}, at most p_next of
-- each, the groups in the order of their turns with as many ids as they have capacity.
create or replace function next_in_queue(p_queue text, p_now bigint, p_next integer, p_looks integer)
returns text language plpgsql stable as $body$
declare
    coming jsonb;  -- what a reserve would bring into line first
    ungrouped text[];
    members text[];
    groups json[] := '{}';
    looked integer := 0;
    one record;
begin
    coming := coalesce((
        select jsonb_agg(x) from (
            (select j.id, j.grp, j.priority, j.due, j.seq, 0 as freed from jobs j
             where j.queue = p_queue and j.state = @scheduled@ and j.wake <= p_now limit p_looks)
            union all
            (select j.id, j.grp, j.priority, j.wake, j.seq, 1 from jobs j
             where j.queue = p_queue and j.state = @leased@ and j.wake <= p_now limit p_looks)) as x), '[]');
    if jsonb_array_length(coming) >= p_looks or (
        select count(*) from (select from jobs j where j.queue = p_queue and j.state in (@queued@, @expired@)
                              and j.grp is null and j.wake > p_now limit p_looks) as x) >= p_looks
    then
        return null;
    end if;
    ungrouped := array(
        select x.id from (
            (select j.id, j.priority, j.due, j.seq from jobs j
             where j.queue = p_queue and j.state in (@queued@, @expired@) and j.grp is null and j.wake <= p_now
             order by j.priority desc, j.due, j.seq limit p_next)
            union all
            select c.id, c.priority, c.due, c.seq
            from jsonb_to_recordset(coming) as c(id text, grp text, priority integer, due bigint, seq bigint)
            where c.grp is null) as x
        order by x.priority desc, x.due, x.seq limit p_next);
    for one in select * from groups_in_turn(p_queue, coming, p_looks) loop
        looked := looked + 1;
        if looked >= p_looks then
            return null;
        end if;
        members := first_of_group(p_queue, one.grp, p_now, least(one.room, p_next)::integer, coming);
        if members <> '{}' then
            groups := groups || to_json(members);
        end if;
        exit when cardinality(groups) >= p_next;
    end loop;
    return json_build_object(
        'groups_next', coalesce((select q.groups_next from queues q where q.queue = p_queue), true),
        'ungrouped', ungrouped, 'groups', groups);
end
$body$;
