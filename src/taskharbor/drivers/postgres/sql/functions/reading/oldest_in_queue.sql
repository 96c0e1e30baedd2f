-- Since when the oldest ready job of a queue waits: the time or null, and whether that is known.
-- What is due and not in line yet is found by its time.
create or replace function oldest_in_queue(p_queue text, p_now bigint, p_looks integer,
                                           out oldest bigint, out is_known boolean)
language plpgsql stable as $body$
declare
    levels integer;
    names integer;
    in_line bigint;
    due_since bigint;
    looked integer := 0;
    one record;
begin
    select l.levels, l.names, l.since into levels, names, in_line from oldest_in_line(p_queue, p_now, p_looks) as l;
    if levels >= p_looks or names >= p_looks or (coalesce(in_line > p_now, true) and (
        select count(*) from (select from jobs j where j.queue = p_queue and j.state in (@queued@, @expired@)
                              and j.grp is null limit p_looks) as x) + (
        select count(*) from (select from jobs j where j.queue = p_queue and j.state in (@queued@, @expired@)
                              and j.grp is not null limit p_looks) as x) >= p_looks)
    then
        is_known := false;
        return;
    end if;
    -- A job is due at its wake, or later if it was stored later: none that follows one that is due at its wake is older.
    for one in select j.wake, j.due from jobs j
               where j.queue = p_queue and j.state = @scheduled@ and j.wake > 0 and j.wake <= p_now
               order by j.wake limit p_looks loop
        exit when due_since <= one.wake;
        due_since := least(due_since, one.due);
        looked := looked + 1;
    end loop;
    is_known := looked < p_looks;
    if is_known then
        oldest := least(
            in_line, due_since,
            (select j.due from jobs j where j.queue = p_queue and j.state = @scheduled@ and j.wake = 0
             order by j.due, j.seq limit 1),
            (select j.wake from jobs j where j.queue = p_queue and j.state = @leased@ and j.wake <= p_now
             order by j.wake limit 1));
    end if;
end
$body$;
