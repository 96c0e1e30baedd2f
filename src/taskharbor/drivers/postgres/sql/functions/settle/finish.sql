-- Move the jobs of acks, failures and cancellations from `jobs` to `history`.
-- in:  as settle; out: the positions of what was applied; ids and positions of the acked ones; the changes for groups;
--     ids of cancelled jobs of flows
-- One index lookup for each job, then its row by its ctid: the planner has no other plan. A row that changes between the
-- lookup and the lock is not found at its ctid: it counts as locked. Only what can be applied is locked, so that an
-- outcome that comes too late holds up no other call.
create or replace function finish(p_given text, p_now bigint, out positions integer[], out acked text[],
                                  out acked_positions integer[], out changes group_change[],
                                  out stopped text[])
language plpgsql as $body$
begin
    with gone as (
        delete from jobs j
        using (select x.place, i.*
               from json_to_recordset(p_given::json) as i(o integer, id text, token text, kind smallint, result text,
                                                          attempts integer, last_error text, failed_at bigint,
                                                          reason text, error_class text, fingerprint text,
                                                          trail text),
                    lateral (select y.ctid as place from jobs y where y.id = i.id collate "C" and i.kind in (@ack@, @fail@, @cancel@)
                             and y.token = i.token collate "C" and y.state in (@leased@, @expired@) and y.wake > p_now
                             limit 1 for update skip locked) as x) as g
        where j.ctid = g.place
        returning j.*, g.o, g.kind, g.result as g_result, g.attempts as g_attempts, g.last_error as g_last_error,
                  g.failed_at as g_failed_at, g.reason as g_reason, g.error_class as g_error_class,
                  g.fingerprint as g_fingerprint, g.trail as g_trail
    ), kept as (
        insert into history (id, queue, type, payload, run_at, timeout, priority, attempts, max_attempts, deliveries,
                             lost, key, grp, group_limit, depends_on, flow_id, handed_to, metadata, last_error,
                             failed_at, reason, created_at, finished_at, result, state, wake, due, seq, stored, open,
                             worker, began_at, trail, error_class, fingerprint, note, edits, keep_for, memos, settled,
                             settled_as)
        select x.id, x.queue, x.type, x.payload, x.run_at, x.timeout, x.priority,
               case when x.kind = @fail@ then x.g_attempts else x.attempts end, x.max_attempts, x.deliveries, 0, x.key,
               x.grp, x.group_limit, x.depends_on, x.flow_id, x.handed_to, x.metadata,
               case when x.kind = @ack@ then x.last_error else coalesce(x.g_last_error, x.g_reason) end,
               case when x.kind = @fail@ then coalesce(x.g_failed_at, x.failed_at) else x.failed_at end,
               case when x.kind = @ack@ then x.reason else x.g_reason end, x.created_at, p_now,
               case when x.kind = @ack@ then decode(x.g_result, 'base64') else x.result end,
               case x.kind when @ack@ then @done@ when @fail@ then @dead@ else @cancelled@ end,
               0, x.due, x.seq, x.stored, 0, x.worker, x.began_at, coalesce(decode(x.g_trail, 'base64'), x.trail),
               case when x.kind = @fail@ then x.g_error_class else x.error_class end,
               case when x.kind = @fail@ then x.g_fingerprint else x.fingerprint end, x.note, x.edits, x.keep_for,
               x.memos, x.token, x.kind
        from gone x
    )
    select array_agg(gone.o), array_agg(gone.id order by gone.o) filter (where gone.kind = @ack@),
           array_agg(gone.o order by gone.o) filter (where gone.kind = @ack@),
           array_agg(left_group(gone.queue, gone.grp, gone.state)) filter (where gone.grp is not null),
           array_agg(gone.id) filter (where gone.kind = @cancel@ and gone.flow_id is not null)
    into positions, acked, acked_positions, changes, stopped from gone;
end
$body$;
