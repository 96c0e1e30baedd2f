-- Apply outcomes, each fenced by its lease. One statement for a batch.
-- in:  p_given  JSON array, each job once: o, id, token, kind (0 look only, 1 ack, 2 retry, 3 fail, 4 cancelled), `was`
--               (the kind for which a repetition is looked up), result (base64), run_at, attempts, last_error,
--               failed_at, reason
--      p_now; p_release: whether dependents of what is acked are released
-- out: (o, code, ends) for what was not applied: 0 applied before, 1 unknown, 2 not inflight, 3 another token,
--      4 expired (at `ends`), 5 it could be applied (kind 0), 6 somebody else has it locked: to be sent again
-- locks: the jobs that nobody else has locked (skip locked: it never waits for one while it holds others); then their
--      dependents in the order of ids; then groups in the order of names
-- One look-up for each job, and its row by its place: whatever a planner believes, it has no other way. A row that was
-- changed between the look and the lock is not found there any more: it counts as locked. Only what can be applied is
-- locked, so that an outcome that comes too late is in nobody's way.
create or replace function settle(p_given text, p_now bigint, p_release boolean)
returns table (o integer, code integer, ends bigint) language plpgsql
set search_path = @schema@, pg_temp set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $body$
#variable_conflict use_column
declare
    base bigint := nextval('arrival') << 20;
    settled_o integer[];
    acked text[];
    acked_o integer[];
    group_queues text[];
    group_names text[];
    group_states integer[];
    told text[];
    released_o integer[] := '{}';
    released_queues text[];
    again_o integer[];
    again_queues text[];
    g_queues text[];
    g_names text[];
    g_states integer[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation();
    end if;
    with gone as (
        delete from jobs j
        using (select x.place, i.*
               from json_to_recordset(p_given::json) as i(o integer, id text, token text, kind smallint, result text,
                                                          attempts integer, last_error text, failed_at bigint,
                                                          reason text),
                    lateral (select y.ctid as place from jobs y where y.id = i.id collate "C" and i.kind in (1, 3, 4)
                             and y.token = i.token collate "C" and y.state in (3, 4) and y.wake > p_now
                             limit 1 for update skip locked) as x) as g
        where j.ctid = g.place
        returning j.*, g.o, g.kind, g.result as g_result, g.attempts as g_attempts, g.last_error as g_last_error,
                  g.failed_at as g_failed_at, g.reason as g_reason
    ), kept as (
        insert into history (id, queue, type, payload, run_at, timeout, priority, attempts, max_attempts, deliveries,
                             lost, key, grp, group_limit, depends_on, flow_id, handed_to, metadata, last_error,
                             failed_at, reason, created_at, finished_at, result, state, wake, due, seq, stored, open,
                             settled, settled_as)
        select x.id, x.queue, x.type, x.payload, x.run_at, x.timeout, x.priority,
               case when x.kind = 3 then x.g_attempts else x.attempts end, x.max_attempts, x.deliveries, 0, x.key,
               x.grp, x.group_limit, x.depends_on, x.flow_id, x.handed_to, x.metadata,
               case when x.kind = 1 then x.last_error else coalesce(x.g_last_error, x.g_reason) end,
               case when x.kind = 3 then coalesce(x.g_failed_at, x.failed_at) else x.failed_at end,
               case when x.kind = 1 then x.reason else x.g_reason end, x.created_at, p_now,
               case when x.kind = 1 then decode(x.g_result, 'base64') else x.result end,
               case x.kind when 1 then 5 when 3 then 6 else 7 end, 0, x.due, x.seq, x.stored, 0, x.token, x.kind
        from gone x
    )
    select array_agg(gone.o), array_agg(gone.id order by gone.o) filter (where gone.kind = 1),
           array_agg(gone.o order by gone.o) filter (where gone.kind = 1),
           array_agg(gone.queue) filter (where gone.grp is not null),
           array_agg(gone.grp) filter (where gone.grp is not null),
           array_agg(gone.state) filter (where gone.grp is not null)
    into settled_o, acked, acked_o, group_queues, group_names, group_states from gone;

    -- A new look: an edge that was added while we waited for the job is there now.
    if acked is not null and p_release and exists (select from edges) then
        select r.released_o, r.released_queues into released_o, released_queues
        from release_dependents(acked, acked_o, p_now, base) as r;
    end if;

    if strpos(p_given, '"kind":2') > 0 then
        with back as (
            update jobs j
            set state = case when j.grp is null and coalesce(g.run_at, 0) <= p_now then 2 else 1 end,
                wake = coalesce(g.run_at, 0), due = greatest(coalesce(g.run_at, 0), p_now),
                seq = base + g.o + (select count(*) from unnest(released_o) as r where r < g.o),
                run_at = g.run_at, attempts = g.attempts, last_error = coalesce(g.last_error, j.last_error),
                failed_at = coalesce(g.failed_at, j.failed_at),
                lost = case when g.attempts = j.attempts then j.lost else 0 end,
                token = null, worker = null, settled = j.token, settled_as = 2,
                open = j.state  -- where it stood before: returning shows new values only
            from (select x.place, i.*
                  from json_to_recordset(p_given::json) as i(o integer, id text, token text, kind smallint,
                                                             run_at bigint, attempts integer, last_error text,
                                                             failed_at bigint),
                       lateral (select y.ctid as place from jobs y where y.id = i.id collate "C" and i.kind = 2
                                and y.token = i.token collate "C" and y.state in (3, 4) and y.wake > p_now
                                limit 1 for no key update skip locked) as x) as g
            where j.ctid = g.place
            returning j.queue, j.grp, j.open as was, g.o
        )
        select array_agg(back.o), array_agg(back.queue),
               array_agg(back.queue) filter (where back.grp is not null),
               array_agg(back.grp) filter (where back.grp is not null),
               array_agg(back.was) filter (where back.grp is not null)
        into again_o, again_queues, g_queues, g_names, g_states from back;
        settled_o := settled_o || again_o;
        group_queues := group_queues || g_queues;
        group_names := group_names || g_names;
        group_states := group_states || g_states;
    end if;

    if group_names is not null then
        perform regroup(group_queues, group_names,
                        array(select case when s = 3 then -1 else 0 end from unnest(group_states) as s),
                        array(select case when s = 4 then -1 else 0 end from unnest(group_states) as s));
    end if;
    told := group_queues || again_queues || released_queues;
    if told is not null then
        perform hint(told, false);
    end if;

    if cardinality(settled_o) is distinct from json_array_length(p_given::json) then
        return query
            select g.o,
                   case when coalesce(j.settled, h.settled) = g.token and coalesce(j.settled_as, h.settled_as) = g.was
                             and (j.state in (3, 4) and j.token = g.token) is not true then 0
                        when j.id is null and h.id is null then 1
                        when j.id is null or j.state not in (3, 4) then 2
                        when j.token <> g.token then 3
                        when j.wake <= p_now then 4
                        when coalesce(g.kind, 0) = 0 then 5
                        else 6 end,
                   j.wake
            from json_to_recordset(p_given::json) as g(o integer, id text, token text, was smallint, kind smallint)
            left join jobs j on j.id = g.id collate "C"
            left join history h on h.id = g.id collate "C"
            where settled_o is null or g.o <> all(settled_o);
    end if;
end
$body$;

-- The same for the common case, outcomes that are all acks.
-- in:  p_ids    with a line feed between two, each job once; p_tokens and p_results with a comma between two: the
--               tokens, and null or for each job its result (a space and base64, or - for none); p_now
-- out: null: all are applied; else the places of those that are not, for settle to apply or to say why
-- locks: as settle
create or replace function ack(p_ids text, p_tokens text, p_results text, p_now bigint)
returns text language plpgsql
set search_path = @schema@, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $body$
declare
    ids text[] := string_to_array(p_ids, e'\n');
    acked text[];
    acked_o integer[];
    group_queues text[];
    group_names text[];
    group_states integer[];
    told text[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation();
    end if;
    with gone as (
        delete from jobs j
        using (select x.place, i.token, i.result, i.o
               from unnest(ids, string_to_array(p_tokens, ','), string_to_array(p_results, ',', '-'))
                    with ordinality as i(id, token, result, o),
                    lateral (select y.ctid as place from jobs y where y.id = i.id collate "C"
                             and y.token = i.token collate "C" and y.state in (3, 4) and y.wake > p_now
                             limit 1 for update skip locked) as x) as g
        where j.ctid = g.place
        returning j.id, j.queue, j.type, j.payload, j.run_at, j.timeout, j.priority, j.attempts, j.max_attempts,
                  j.deliveries, j.key, j.grp, j.group_limit, j.depends_on, j.flow_id, j.handed_to, j.metadata,
                  j.last_error, j.failed_at, j.reason, j.created_at, j.due, j.seq, j.stored, j.token, j.state,
                  g.result, g.o
    ), kept as (
        insert into history (id, queue, type, payload, run_at, timeout, priority, attempts, max_attempts, deliveries,
                             key, grp, group_limit, depends_on, flow_id, handed_to, metadata, last_error, failed_at,
                             reason, created_at, due, seq, stored, settled, settled_as, state, finished_at, lost, result)
        select x.id, x.queue, x.type, x.payload, x.run_at, x.timeout, x.priority, x.attempts, x.max_attempts,
               x.deliveries, x.key, x.grp, x.group_limit, x.depends_on, x.flow_id, x.handed_to, x.metadata,
               x.last_error, x.failed_at, x.reason, x.created_at, x.due, x.seq, x.stored, x.token, 1, 5, p_now, 0,
               decode(x.result, 'base64')
        from gone x
    )
    select array_agg(gone.id), array_agg(gone.o - 1),
           array_agg(gone.queue) filter (where gone.grp is not null),
           array_agg(gone.grp) filter (where gone.grp is not null),
           array_agg(gone.state) filter (where gone.grp is not null)
    into acked, acked_o, group_queues, group_names, group_states from gone;

    if acked is not null and exists (select from edges) then
        select r.released_queues into told
        from release_dependents(acked, acked_o, p_now, nextval('arrival') << 20) as r;
    end if;
    if group_names is not null then
        perform regroup(group_queues, group_names,
                        array(select case when s = 3 then -1 else 0 end from unnest(group_states) as s),
                        array(select case when s = 4 then -1 else 0 end from unnest(group_states) as s));
        told := told || group_queues;
    end if;
    if told is not null then
        perform hint(told, false);
    end if;
    if cardinality(acked) is distinct from cardinality(ids) then
        return (select string_agg(o::text, ',') from generate_series(0, cardinality(ids) - 1) as o
                where acked_o is null or o <> all(acked_o));
    end if;
    return null;
end
$body$;

-- Jobs are done: count them off where they are waited for; what waits for nothing else joins the line.
-- in: their ids, and their places in the batch; out: for each released job the place of the ack and its queue
create or replace function release_dependents(p_done text[], p_places integer[], p_now bigint, p_base bigint,
                                              out released_o integer[], out released_queues text[])
language plpgsql as $body$
declare
    dependents text[];
    counts integer[];
    places integer[];
begin
    released_o := '{}';
    select array_agg(x.dependent), array_agg(x.n), array_agg(x.o) into dependents, counts, places
    from (select e.dependent, count(*)::integer as n, max(a.o) as o
          from unnest(p_done, p_places) as a(id, o) join edges e on e.dependency = a.id collate "C"
          group by e.dependent) as x;
    if dependents is null then
        return;
    end if;
    perform from jobs j where j.id = any(dependents) and j.state = 0 order by j.id for no key update;
    with fewer as (
        update jobs j set open = greatest(coalesce(j.open, 0)::bigint - x.n, -1)  -- damaged, too
        from unnest(dependents, counts, places) as x(id, n, o)
        where j.id = x.id collate "C" and j.state = 0
        returning j.id, j.open, j.stored, x.o
    ), free as (
        select f.id, f.o, row_number() over (order by f.o, f.stored) as k from fewer f where f.open <= 0
    )
    select array_agg(free.id order by free.k), array_agg(free.o order by free.k) into dependents, places from free;
    if dependents is null then
        return;
    end if;
    with up as (
        update jobs j
        set state = case when j.grp is null and coalesce(j.run_at, 0) <= p_now then 2 else 1 end,
            wake = coalesce(j.run_at, 0), due = greatest(coalesce(j.run_at, 0), p_now), seq = p_base + x.o + x.k
        from unnest(dependents, places) with ordinality as x(id, o, k)
        where j.id = x.id collate "C"
        returning j.queue
    )
    select array_agg(distinct up.queue) into released_queues from up;
    released_o := places;
end
$body$;

-- A spawned job takes the place of a done one in the depends_on of these dependents.
-- in: the done job, who takes over, the dependents; out: a message if that would close a cycle, else null
-- locks: the dependents, in the order of ids
create or replace function hand_over(p_old text, p_new text, p_dependents text, p_now bigint)
returns text language plpgsql set search_path = @schema@, pg_temp set jit = off set enable_seqscan = off as $body$
#variable_conflict use_variable
declare
    base bigint := nextval('arrival') << 20;
    wanted text[] := array(select json_array_elements_text(p_dependents::json));
    met text;
    one record;
    n integer := 0;
    known boolean;
    new_done boolean := exists (select from history h where h.id = p_new and h.state + 0 = 5);
    told text[] := '{}';
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation();
    end if;
    with recursive walk(id) as (
        select p_new collate "C"
        union
        select d collate "C" from walk w join records r on r.id = w.id and r.state <> 5, unnest(r.depends_on) as d
    )
    select w.id into met from walk w where w.id = any(wanted) limit 1;
    if met is not null then
        return format('handover: %s depends on %s, which would depend on it; leave one of the edges out', p_new, met);
    end if;
    perform from jobs j where j.id = any(wanted) order by j.id for no key update;
    perform from history h where h.id = any(wanted) order by h.id for no key update;
    update history h set handed_to = p_new where h.id = p_old;
    for one in select r.id, r.stored from records r where r.id = any(wanted) order by r.stored loop
        delete from edges e where e.dependency = p_old and e.dependent = one.id;
        continue when not found;
        insert into edges (dependency, dependent) values (p_new, one.id) on conflict do nothing;
        known := not found;
        update history h set depends_on = array_replace(h.depends_on, p_old collate "C", p_new collate "C")
        where h.id = one.id;
        update jobs j set depends_on = array_replace(j.depends_on, p_old collate "C", p_new collate "C"),
            open = greatest(coalesce(j.open, 0)::bigint - case when known or new_done then 1 else 0 end, -1)
        where j.id = one.id;
        n := n + 1;
        update jobs j
        set state = case when j.grp is null and coalesce(j.run_at, 0) <= p_now then 2 else 1 end,
            wake = coalesce(j.run_at, 0), due = greatest(coalesce(j.run_at, 0), p_now), seq = base + n
        where j.id = one.id and j.state = 0 and j.open <= 0;
        if found then
            told := told || array(select j.queue from jobs j where j.id = one.id);
        end if;
    end loop;
    if told <> '{}' then
        perform hint(told, false);
    end if;
    return null;
end
$body$;
