-- Extend leases, and store the notes that come with them.
-- in:  JSON array of o (position), id, token, each job once, and note (base64) if one is to be stored; the time; the new
--      end of the leases
-- out: (o, code, ends) for each. holds: until `ends`; the other codes are those of refusals
-- locks: the jobs that no other call has locked. It waits for none, so that no lease is lost because of another job
create or replace function extend(p_given text, p_now bigint, p_until bigint)
returns table (o integer, code integer, ends bigint) language plpgsql @ours@ @one_plan@ as $body$
#variable_conflict use_column
declare
    changes group_change[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then perform refuse_isolation(); end if;
    with extended as (
        update jobs j
        set wake = greatest(j.wake, p_until), due = greatest(j.wake, p_until), state = @leased@,
            note = coalesce(decode(g.note, 'base64'), j.note)
        from (select x.place, x.was, i.note from json_to_recordset(p_given::json) as i(id text, token text, note text),
                     lateral (select y.ctid as place, y.state as was from jobs y where y.id = i.id collate "C"
                              and y.token = i.token collate "C" and y.state in (@leased@, @expired@)
                              and y.wake > p_now and (y.wake < p_until or i.note is not null)
                              limit 1 for no key update skip locked) as x) as g
        where j.ctid = g.place
        returning j.queue, j.grp, g.was
    )
    select array_agg(row(e.queue, e.grp, 1, -1)::group_change) into changes
    from extended e where e.grp is not null and e.was = @expired@;
    if changes is not null then  -- for a faster clock their leases had ended
        perform regroup(changes);
    end if;
    return query
        select g.o,
               case when j.id is null and h.id is null then @unknown_job@
                    when j.id is null or j.state not in (@leased@, @expired@) then @not_inflight@
                    when j.token <> g.token then @other_token@
                    when j.wake <= p_now then @lease_ended@
                    when j.wake >= p_until and (g.note is null or decode(g.note, 'base64') = j.note) then @holds@
                    else @is_locked@ end,
               j.wake
        from json_to_recordset(p_given::json) as g(o integer, id text, token text, note text)
        left join jobs j on j.id = g.id collate "C"
        left join history h on h.id = g.id collate "C";
end
$body$;
