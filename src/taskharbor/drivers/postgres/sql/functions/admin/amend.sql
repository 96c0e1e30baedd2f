-- Change fields of jobs that are not running.
-- in:  JSON array of objects: id, deliveries and edits of the record that the editor saw, and the columns to change: payload
--      (as bytea is written), run_at, priority, max_attempts, timeout, metadata, last_error, reason, trail, note; null where one becomes empty; the time
-- out: as cancel; 'amended': the record was reserved or amended since
-- locks: the jobs that no other call has locked, each before its steps; then groups in the order of names
create or replace function amend(p_changes text, p_now bigint)
returns text[] language plpgsql @ours@ as $body$
declare
    base bigint := nextval('arrival') << 20;
    results text[] := '{}';
    refused text;
    changes group_change[] := '{}';
    hinted text[] := '{}';
    c jsonb;
    j jobs;
    was jobs;
    n integer := 0;
begin
    if current_setting('transaction_isolation') <> 'read committed' then perform refuse_isolation(); end if;
    for c in select jsonb_array_elements(p_changes::jsonb) loop
        n := n + 1;
        select x.* into j from jobs x where x.id = c ->> 'id' for no key update skip locked;
        if not found then
            select x.* into j from history x where x.id = c ->> 'id' for no key update skip locked;
        end if;
        if not found then
            refused := case when exists (select from records r where r.id = c ->> 'id') then 'locked' else 'unknown' end;
        else
            refused := case
                when j.state = @done@ then 'done'
                when j.state in (@leased@, @expired@) then 'under a lease'
                when greatest(coalesce(j.deliveries, 0), 0) <> (c ->> 'deliveries')::integer
                     or greatest(coalesce(j.edits, 0), 0) <> (c ->> 'edits')::integer then 'amended' end;
        end if;
        results := results || refused;
        continue when refused is not null;
        was := j;
        j := jsonb_populate_record(j, c);
        if c ? 'payload' and j.memos then  -- what was done for the old one
            delete from steps s where s.id = j.id;
            j.memos := null;
        end if;
        j.edits := least(j.edits, 2147483646) + 1;
        if was.state in (@scheduled@, @queued@) and (c ? 'run_at' or c ? 'priority') then
            -- It joins the line again: at the later of its run_at and now, behind what is there.
            if was.grp is not null and was.state = @queued@ then
                changes := changes || left_group(was.queue, was.grp, was.state);
            end if;
            j.state := first_state(j.grp, j.run_at, p_now);
            j.wake := coalesce(j.run_at, 0);
            j.due := greatest(coalesce(j.run_at, 0), p_now);
            j.seq := base + n;
            if j.wake <= p_now then hinted := hinted || j.queue; end if;
        end if;
        perform store_amended(j);
    end loop;
    if cardinality(changes) > 0 then
        perform regroup(changes);
        hinted := hinted || array(select x.queue from unnest(changes) as x);
    end if;
    perform hint(hinted, false);
    return results;
end
$body$;
