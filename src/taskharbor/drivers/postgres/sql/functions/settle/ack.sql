-- settle for the common case: outcomes that are all acks. Plans and locks as in finish.
-- in:  p_ids     joined by line feeds, each job once
--      p_tokens  joined by commas
--      p_results null, or joined by commas: for each job a space and its result in base64, or - for none
-- out: null if all are applied; else the positions of those that are not, for settle to apply or refuse
create or replace function ack(p_ids text, p_tokens text, p_results text, p_now bigint)
returns text language plpgsql @ours@ @one_plan@ @nested_loops@ set enable_bitmapscan = off as $body$
declare
    ids text[] := string_to_array(p_ids, e'\n');
    acked text[];
    positions integer[];
    changes group_change[];
    hinted text[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then perform refuse_isolation(); end if;
    with gone as (
        delete from jobs j
        using (select x.place, i.token, i.result, i.o
               from unnest(ids, string_to_array(p_tokens, ','), string_to_array(p_results, ',', '-'))
                    with ordinality as i(id, token, result, o),
                    lateral (select y.ctid as place from jobs y where y.id = i.id collate "C"
                             and y.token = i.token collate "C" and y.state in (@leased@, @expired@) and y.wake > p_now
                             limit 1 for update skip locked) as x) as g
        where j.ctid = g.place
        returning j.id, j.queue, j.type, j.payload, j.run_at, j.timeout, j.priority, j.attempts, j.max_attempts,
                  j.deliveries, j.key, j.grp, j.group_limit, j.depends_on, j.flow_id, j.handed_to, j.metadata,
                  j.last_error, j.failed_at, j.reason, j.created_at, j.due, j.seq, j.stored, j.token, j.state, j.worker,
                  j.began_at, j.trail, j.error_class, j.fingerprint, j.note, j.edits, j.keep_for, j.memos, g.result,
                  g.o
    ), kept as (
        insert into history (id, queue, type, payload, run_at, timeout, priority, attempts, max_attempts, deliveries,
                             key, grp, group_limit, depends_on, flow_id, handed_to, metadata, last_error, failed_at,
                             reason, created_at, due, seq, stored, worker, began_at, trail, error_class, fingerprint, note,
                             edits, keep_for, memos, settled, settled_as, state, finished_at, lost, result)
        select x.id, x.queue, x.type, x.payload, x.run_at, x.timeout, x.priority, x.attempts, x.max_attempts,
               x.deliveries, x.key, x.grp, x.group_limit, x.depends_on, x.flow_id, x.handed_to, x.metadata,
               x.last_error, x.failed_at, x.reason, x.created_at, x.due, x.seq, x.stored, x.worker, x.began_at, x.trail,
               x.error_class, x.fingerprint, x.note, x.edits, x.keep_for, x.memos, x.token, @ack@, @done@, p_now, 0,
               decode(x.result, 'base64')
        from gone x
    )
    select array_agg(gone.id), array_agg(gone.o - 1),
           array_agg(left_group(gone.queue, gone.grp, gone.state)) filter (where gone.grp is not null)
    into acked, positions, changes from gone;
    if acked is not null and exists (select from edges) then
        select r.queues into hinted from release_dependents(acked, positions, p_now, nextval('arrival') << 20) as r;
    end if;
    if changes is not null then
        perform regroup(changes);
        hinted := hinted || array(select c.queue from unnest(changes) as c);
    end if;
    if hinted is not null then
        perform hint(hinted, false);
    end if;
    if cardinality(acked) is distinct from cardinality(ids) then
        return (select string_agg(o::text, ',') from generate_series(0, cardinality(ids) - 1) as o
                where positions is null or o <> all(positions));
    end if;
    return null;
end
$body$;
