-- Why outcomes were not applied.
-- in:  as settle; the positions of those that were
-- out: (o, code, ends). already_applied: by an earlier call; lease_ended: at `ends`; holds: it could be applied (kind 0
--      only); is_locked: another call has the job locked, to be sent again
create or replace function refusals(p_given text, p_now bigint, p_applied integer[])
returns table (o integer, code integer, ends bigint) language plpgsql as $body$
#variable_conflict use_column
begin
    return query
        select g.o,
               case when coalesce(j.settled, h.settled) = g.token and coalesce(j.settled_as, h.settled_as) = g.was
                         and (j.state in (@leased@, @expired@) and j.token = g.token) is not true then @already_applied@
                    when j.id is null and h.id is null then @unknown_job@
                    when j.id is null or j.state not in (@leased@, @expired@) then @not_inflight@
                    when j.token <> g.token then @other_token@
                    when j.wake <= p_now then @lease_ended@
                    when coalesce(g.kind, 0) = 0 then @holds@
                    else @is_locked@ end,
               j.wake
        from json_to_recordset(p_given::json) as g(o integer, id text, token text, was smallint, kind smallint)
        left join jobs j on j.id = g.id collate "C"
        left join history h on h.id = g.id collate "C"
        where p_applied is null or g.o <> all(p_applied);
end
$body$;
