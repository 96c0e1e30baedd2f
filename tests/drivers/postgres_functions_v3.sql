-- The functions of schema number 3, for test_postgres_upgrade.py, which calls them beside the functions of today. Frozen:
-- they are as they were created, except that the comments before them are left out. The tables are those of the first
-- migrations.
create type deleted_job_v3 as (
    id text collate "C",
    queue text collate "C",
    key bytea,
    flow_id text collate "C"
);
create type group_change_v3 as (
    queue text collate "C",
    grp text collate "C",
    inflight integer,
    waiting integer
);
create type reserved_job_v3 as (
    id text collate "C",
    queue text collate "C",
    type text collate "C",
    payload bytea,
    run_at bigint,
    timeout bigint,
    priority integer,
    attempts integer,
    max_attempts integer,
    deliveries integer,
    lost integer,
    created_at bigint,
    rare text,
    token text collate "C"
);
create or replace function ack_v3(p_ids text, p_tokens text, p_results text, p_now bigint)
returns text language plpgsql
set search_path = taskharbor, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $body$
declare
    ids text[] := string_to_array(p_ids, e'\n');
    acked text[];
    positions integer[];
    changes group_change_v3[];
    hinted text[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v3();
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
                  j.last_error, j.failed_at, j.reason, j.created_at, j.due, j.seq, j.stored, j.token, j.state, j.worker,
                  j.began_at, j.trail, j.error_class, j.fingerprint, j.note, j.edits, j.keep_for, g.result, g.o
    ), kept as (
        insert into history (id, queue, type, payload, run_at, timeout, priority, attempts, max_attempts, deliveries,
                             key, grp, group_limit, depends_on, flow_id, handed_to, metadata, last_error, failed_at,
                             reason, created_at, due, seq, stored, worker, began_at, trail, error_class, fingerprint, note,
                             edits, keep_for, settled, settled_as, state, finished_at, lost, result)
        select x.id, x.queue, x.type, x.payload, x.run_at, x.timeout, x.priority, x.attempts, x.max_attempts,
               x.deliveries, x.key, x.grp, x.group_limit, x.depends_on, x.flow_id, x.handed_to, x.metadata,
               x.last_error, x.failed_at, x.reason, x.created_at, x.due, x.seq, x.stored, x.worker, x.began_at, x.trail,
               x.error_class, x.fingerprint, x.note, x.edits, x.keep_for, x.token, 1, 5, p_now, 0,
               decode(x.result, 'base64')
        from gone x
    )
    select array_agg(gone.id), array_agg(gone.o - 1),
           array_agg(left_group_v3(gone.queue, gone.grp, gone.state)) filter (where gone.grp is not null)
    into acked, positions, changes from gone;
    if acked is not null and exists (select from edges) then
        select r.queues into hinted from release_dependents_v3(acked, positions, p_now, nextval('arrival') << 20) as r;
    end if;
    if changes is not null then
        perform regroup_v3(changes);
        hinted := hinted || array(select c.queue from unnest(changes) as c);
    end if;
    if hinted is not null then
        perform hint_v3(hinted, false);
    end if;
    if cardinality(acked) is distinct from cardinality(ids) then
        return (select string_agg(o::text, ',') from generate_series(0, cardinality(ids) - 1) as o
                where positions is null or o <> all(positions));
    end if;
    return null;
end
$body$;
create or replace function add_figures_v3(p_rows text, p_oldest bigint)
returns void language plpgsql
set search_path = taskharbor, pg_temp set jit = off set enable_seqscan = off as $body$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v3();
    end if;
    insert into figures as f (minute, queue, name, n)
    select g.minute, g.queue, g.name, sum(g.n)
    from json_to_recordset(p_rows::json) as g(minute bigint, queue text, name text, n bigint)
    where g.minute >= p_oldest
    group by g.minute, g.queue, g.name
    order by g.minute, g.queue collate "C", g.name collate "C"
    on conflict (minute, queue, name) do update set n = least(f.n::numeric + excluded.n, 9223372036854775807);
    delete from figures f where f.ctid = any(array(
        select x.ctid from figures x where x.minute < p_oldest order by x.minute limit 1000 for update skip locked));
end
$body$;
create or replace function admit_v3(p_queue text, p_group text, p_ids text[], p_now bigint)
returns text[] language plpgsql as $body$
declare
    sound text[];
    damaged text[];
    aside integer := 0;
begin
    select coalesce(array_agg(x.id order by x.n) filter (where damage_of_v3(j) is null), '{}'),
           array_agg(x.id) filter (where damage_of_v3(j) is not null)
    into sound, damaged
    from unnest(p_ids) with ordinality as x(id, n) join jobs j on j.id = x.id;
    if damaged is not null then
        aside := set_aside_v3(damaged, p_now);
    end if;
    update groups g
    set waiting = greatest(g.waiting - cardinality(sound) - aside, 0), inflight = g.inflight + cardinality(sound),
        served = nextval('arrival')
    where g.queue = p_queue and g.grp = p_group;
    return sound;
end
$body$;
create or replace function amend_v3(p_changes text, p_now bigint)
returns text[] language plpgsql set search_path = taskharbor, pg_temp set jit = off set enable_seqscan = off as $body$
declare
    base bigint := nextval('arrival') << 20;
    results text[] := '{}';
    refused text;
    changes group_change_v3[] := '{}';
    hinted text[] := '{}';
    c jsonb;
    j jobs;
    n integer := 0;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v3();
    end if;
    for c in select jsonb_array_elements(p_changes::jsonb) loop
        n := n + 1;
        select x.* into j from jobs x where x.id = c ->> 'id' for no key update skip locked;
        if not found then
            select x.* into j from history x where x.id = c ->> 'id' for no key update skip locked;
        end if;
        if not found then
            refused := case when exists (select from records r where r.id = c ->> 'id') then 'locked' else 'unknown' end;
        else
            refused := not_amendable_v3(j, c);
        end if;
        results := results || refused;
        continue when refused is not null;
        if j.state in (1, 2) and (c ? 'run_at' or c ? 'priority') then
            if j.grp is not null and j.state = 2 then
                changes := changes || left_group_v3(j.queue, j.grp, j.state);
            end if;
            j := rejoined_v3(amended_v3(j, c), p_now, base + n);
            if j.wake <= p_now then
                hinted := hinted || j.queue;
            end if;
        else
            j := amended_v3(j, c);
        end if;
        perform store_amended_v3(j);
    end loop;
    if cardinality(changes) > 0 then
        perform regroup_v3(changes);
        hinted := hinted || array(select x.queue from unnest(changes) as x);
    end if;
    if hinted <> '{}' then
        perform hint_v3(hinted, false);
    end if;
    return results;
end
$body$;
create or replace function amended_v3(j jobs, c jsonb)
returns jobs language plpgsql immutable as $body$
begin
    if c ? 'payload' then
        j.payload := decode(c ->> 'payload', 'base64');
    end if;
    if c ? 'run_at' then
        j.run_at := (c ->> 'run_at')::bigint;
    end if;
    if c ? 'priority' then
        j.priority := (c ->> 'priority')::integer;
    end if;
    if c ? 'max_attempts' then
        j.max_attempts := (c ->> 'max_attempts')::integer;
    end if;
    if c ? 'timeout' then
        j.timeout := (c ->> 'timeout')::bigint;
    end if;
    if c ? 'metadata' then
        j.metadata := c ->> 'metadata';
    end if;
    j.edits := least(greatest(coalesce(j.edits, 0), 0), 2147483646) + 1;
    return j;
end
$body$;
create or replace function apply_group_limits_v3(p_queues text[])
returns group_change_v3[] language plpgsql as $body$
declare
    changes group_change_v3[];
begin
    if exists (select from group_limits l where l.queue = any(p_queues) and not l.applied) then
        with news as (
            update group_limits l set applied = true
            where (l.queue, l.grp) in (select x.queue, x.grp from group_limits x where x.queue = any(p_queues)
                                       and not x.applied order by x.queue, x.grp limit 1000 for update skip locked)
            returning l.queue, l.grp
        )
        select array_agg(row(n.queue, n.grp, 0, 0)::group_change_v3) into changes
        from news n join groups g on g.queue = n.queue and g.grp = n.grp;
    end if;
    return changes;
end
$body$;
create or replace function as_reserved_v3(j jobs)
returns reserved_job_v3 language sql stable as $body$
    select row(j.id, j.queue, j.type, j.payload, j.run_at, j.timeout, j.priority, j.attempts, j.max_attempts,
               j.deliveries, j.lost, j.created_at, rare_columns_v3(j), j.token)::reserved_job_v3;
$body$;
create or replace function behind_all_v3()
returns text language sql immutable as $body$
    select repeat(chr(1114111), 64);
$body$;
create or replace function cancel_v3(p_ids text, p_now bigint, p_reason text)
returns text[] language plpgsql set search_path = taskharbor, pg_temp set jit = off set enable_seqscan = off as $body$
declare
    results text[] := '{}';
    one text;
    j jobs;
    was integer;
    changes group_change_v3[] := '{}';
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v3();
    end if;
    for one in select json_array_elements_text(p_ids::json) loop
        perform from jobs x where x.id = one and x.state + 0 between 0 and 4 for update skip locked;
        if found then
            delete from jobs x where x.id = one returning x.* into j;
        end if;
        if found then
            if j.grp is not null and j.state > 1 then
                changes := changes || left_group_v3(j.queue, j.grp, j.state);
            end if;
            j := set_finished_v3(j, 7::smallint, p_reason, p_now);
            insert into history select (j).*;
            results := results || null::text;
        else
            select r.state into was from records r where r.id = one;
            results := results || case when not found then 'unknown' when was = 7 then null
                                       when was = 5 then 'done'
                                       when was between 0 and 4 then 'locked' else 'dlq' end;
        end if;
    end loop;
    if cardinality(changes) > 0 then
        perform regroup_v3(changes);
        perform hint_v3(array(select c.queue from unnest(changes) as c), false);
    end if;
    return results;
end
$body$;
create or replace function cancel_flow_v3(p_flow text, p_now bigint, out cancelled integer, out locked integer)
language plpgsql set search_path = taskharbor, pg_temp set jit = off set enable_seqscan = off as $body$
declare
    results text[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v3();
    end if;
    cancelled := 0;
    locked := 0;
    if not lock_flow_v3(p_flow) then
        locked := 1;
        return;
    end if;
    if not exists (select from jobs j where j.flow_id = p_flow)
       and not exists (select from history h where h.flow_id = p_flow) then
        return;
    end if;
    insert into flows (flow_id) values (p_flow) on conflict do nothing;
    results := cancel_v3(coalesce((select json_agg(j.id order by j.id)::text from jobs j where j.flow_id = p_flow
                                and j.state between 0 and 4), '[]'), p_now, 'flow cancelled');
    select count(*) filter (where r is null), count(*) filter (where r = 'locked') into cancelled, locked
    from unnest(results) as r;
end
$body$;
create or replace function cancel_in_cancelled_flows_v3(p_flows text, p_fresh text[], p_now bigint)
returns void language plpgsql as $body$
declare
    cancelled text[] := array(select f.flow_id from flows f
                              where f.flow_id = any(array(select json_array_elements_text(p_flows::json))));
begin
    if cancelled <> '{}' then
        with gone as (
            delete from jobs j using unnest(p_fresh) as x(id)
            where j.id = x.id collate "C" and coalesce(j.flow_id, '') = any(cancelled) returning j.*
        )
        insert into history select (x).* from (
            select set_finished_v3(gone, 7::smallint, 'flow cancelled', p_now) as x from gone) as y;
    end if;
end
$body$;
create or replace function claim_keys_v3(p_keys text, out ids text[], out known text[])
language plpgsql as $body$
begin
    for turn in 1..20 loop
        insert into keys as k (queue, key, id)
        select distinct on (g.queue, g.key) g.queue, decode(g.key, 'base64'), g.id
        from json_to_recordset(p_keys::json) as g(o integer, id text, queue text, key text)
        where not exists (select from jobs j where j.id = g.id)
          and not exists (select from history h where h.id = g.id)
        order by g.queue, g.key, g.o
        on conflict do nothing;
        select coalesce(array_agg(g.id order by g.o), '{}'), coalesce(array_agg(k.id order by g.o), '{}')
        into ids, known
        from json_to_recordset(p_keys::json) as g(o integer, id text, queue text, key text)
        join keys k on k.queue = g.queue collate "C" and k.key = decode(g.key, 'base64') and k.id <> g.id
        where not exists (select from jobs j where j.id = g.id)
          and not exists (select from history h where h.id = g.id);
        -- A key that was there at the insert and is gone now: its record was deleted in between. Try again.
        exit when not exists (
            select from json_to_recordset(p_keys::json) as g(o integer, id text, queue text, key text)
            where not exists (select from jobs j where j.id = g.id)
              and not exists (select from history h where h.id = g.id)
              and not exists (select from keys k
                              where k.queue = g.queue collate "C" and k.key = decode(g.key, 'base64')));
    end loop;
end
$body$;
create or replace function count_dependents_v3(p_id text)
returns bigint language sql stable as $body$
    select count(*) from edges e where e.dependency = p_id
    and (exists (select from jobs j where j.id = e.dependent)
         or exists (select from history h where h.id = e.dependent and h.state + 0 not in (5, 7)));
$body$;
create or replace function count_jobs_v3(p_now bigint, p_cap bigint)
returns table (queue text, state text, n bigint) language plpgsql stable
set search_path = taskharbor, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan as $body$
#variable_conflict use_column
begin
    return query
        select q.queue, x.reads, count(*)
        from queue_names_v3() as q(queue), lateral (
            (select state_of_v3(j.state, j.run_at, j.wake, p_now) as reads from jobs j
             where j.queue = q.queue collate "C" and j.state in (2, 4) and j.grp is null limit p_cap)
            union all
            (select state_of_v3(j.state, j.run_at, j.wake, p_now) from jobs j
             where j.queue = q.queue collate "C" and j.state in (2, 4) and j.grp is not null limit p_cap)
            union all
            (select state_of_v3(j.state, j.run_at, j.wake, p_now) from jobs j
             where j.queue = q.queue collate "C" and j.state = 1 and j.wake <= p_now limit p_cap)
            union all
            (select state_of_v3(j.state, j.run_at, j.wake, p_now) from jobs j
             where j.queue = q.queue collate "C" and j.state = 1 and j.wake > p_now limit p_cap)
            union all
            (select 'ready' from jobs j
             where j.queue = q.queue collate "C" and j.state = 3 and j.wake <= p_now limit p_cap)
            union all
            (select 'inflight' from jobs j
             where j.queue = q.queue collate "C" and j.state = 3 and j.wake > p_now limit p_cap)
            union all
            (select 'blocked' from jobs j where j.queue = q.queue collate "C" and j.state = 0 limit p_cap)
            union all
            (select f.reads from unnest(array[5, 6, 7]::smallint[], array['done', 'dlq', 'cancelled'])
                as f(state, reads), lateral (
                    -- `between` keeps the planner from partial indexes by id, which it may take for small.
                    (select from history h where h.queue = q.queue collate "C" and h.state between f.state and f.state
                     and h.keep_for is null limit p_cap)
                    union all
                    (select from history h where h.queue = q.queue collate "C" and h.state between f.state and f.state
                     and h.keep_for is not null limit p_cap)) as y)
        ) as x group by 1, 2
        union all
        select j.queue, state_of_v3(j.state, j.run_at, j.wake, p_now), count(*) from jobs j
        where j.state < 0 or j.state > 4 group by 1, 2
        union all
        select h.queue, state_of_v3(h.state, h.run_at, h.wake, p_now), count(*) from history h
        where h.state < 5 or h.state > 7 group by 1, 2;
end
$body$;
create or replace function count_open_v3(p_ids text[], p_positions integer[], p_dependencies text[], p_stored text[],
                                      p_now bigint)
returns void language plpgsql as $body$
#variable_conflict use_column
declare
    one record;
    done text[] := '{}';
begin
    for one in select distinct n as dep from unnest(p_stored) as n loop
        if exists (select from history h where h.id = one.dep and h.state + 0 = 5) then
            done := done || one.dep;
        end if;
    end loop;
    for one in
        select e.id, array_agg(e.dep order by e.pos) as deps, count(distinct e.dep) filter (where d.dep is null) as open
        from unnest(p_ids, p_positions, p_dependencies) as e(id, pos, dep)
        left join unnest(done) as d(dep) on d.dep = e.dep
        group by e.id
    loop
        update jobs j
        set depends_on = one.deps, open = one.open,
            state = case when one.open > 0 then 0 else first_state_v3(j.grp, j.run_at, p_now) end
        where j.id = one.id;
    end loop;
end
$body$;
create or replace function damage_of_v3(j jobs)
returns text language sql immutable as $body$
    select case when coalesce(j.type, '') = '' then 'type is missing'
                when j.payload is null then 'payload is missing'
                when (j.attempts >= 0) is not true then 'attempts is not a number'
                when (j.max_attempts >= 0) is not true then 'max_attempts is not a number'
                when (j.deliveries >= 0 and j.deliveries < 2147483647) is not true then 'deliveries is not a number'
                when (j.lost >= 0 and j.lost < 2147483647) is not true then 'lost is not a number'
                when (j.created_at between 0 and 253402300799999999) is not true then 'created_at is not a moment'
                when j.run_at not between 0 and 253402300799999999 then 'run_at is not a moment'
                when j.timeout not between 1000 and 2147483647000 then 'timeout is out of bounds'
                when j.state not between 0 and 7 then 'unknown state' end;
$body$;
create or replace function delete_jobs_v3(p_ids text)
returns text[] language plpgsql set search_path = taskharbor, pg_temp set jit = off set enable_seqscan = off as $body$
declare
    results text[] := '{}';
    deleted deleted_job_v3[] := '{}';
    changes group_change_v3[] := '{}';
    one text;
    j jobs;
    needed bigint;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v3();
    end if;
    for one in select json_array_elements_text(p_ids::json) loop
        select x.* into j from jobs x where x.id = one for update skip locked;
        if not found then
            select x.* into j from history x where x.id = one for update skip locked;
        end if;
        if not found then
            results := results || case when exists (select from records r where r.id = one) then 'locked'
                                       else 'unknown' end;
            continue;
        end if;
        needed := count_dependents_v3(one);
        if needed > 0 then
            results := results || ('needed ' || needed);
            continue;
        end if;
        delete from history x where x.id = one;
        delete from jobs x where x.id = one;
        if found and j.grp is not null and (j.state in (2, 3, 4) or j.token is not null) then
            changes := changes || left_group_v3(j.queue, j.grp, j.state);
        end if;
        deleted := deleted || row(j.id, j.queue, j.key, j.flow_id)::deleted_job_v3;
        results := results || null::text;
    end loop;
    perform forget_v3(deleted);
    if cardinality(changes) > 0 then
        perform regroup_v3(changes);
        perform hint_v3(array(select c.queue from unnest(changes) as c), false);
    end if;
    return results;
end
$body$;
create or replace function drop_unused_keys_v3(p_keys text, p_fresh text[])
returns void language plpgsql as $body$
begin
    delete from keys k
    using json_to_recordset(p_keys::json) as g(o integer, id text, queue text, key text)
    where k.queue = g.queue collate "C" and k.key = decode(g.key, 'base64') and k.id = g.id
      and not exists (select from unnest(p_fresh) as f where f = g.id)
      and not exists (select from records r where r.id = g.id and r.queue = k.queue and r.key = k.key);
end
$body$;
create or replace function early_in_line_v3(p_queue text, p_now bigint)
returns bigint language plpgsql stable as $body$
begin
    return (
        with recursive levels(priority) as (
            (select j.priority from jobs j where j.queue = p_queue and j.state in (2, 4) and j.grp is null
             order by j.priority desc limit 1)
            union all
            select (select j.priority from jobs j where j.queue = p_queue and j.state in (2, 4)
                    and j.grp is null and j.priority < l.priority order by j.priority desc limit 1)
            from levels l where l.priority is not null
        ), names(grp) as (
            (select j.grp from jobs j where j.queue = p_queue and j.state in (2, 4) and j.grp is not null
             order by j.grp limit 1)
            union all
            select (select j.grp from jobs j where j.queue = p_queue and j.state in (2, 4)
                    and j.grp is not null and j.grp > n.grp order by j.grp limit 1)
            from names n where n.grp is not null
        )
        select least(
            (select min(x.wake) from (select l.priority from levels l limit 1000) as p,
                lateral (select j.wake from jobs j where j.queue = p_queue and j.state in (2, 4)
                         and j.grp is null and j.priority = p.priority and j.due > p_now) as x where x.wake > p_now),
            (select min(x.wake) from (select n.grp from names n limit 1000) as g,
                lateral (select j.wake from jobs j where j.queue = p_queue and j.state in (2, 4)
                         and j.grp = g.grp and j.due > p_now) as x where x.wake > p_now)));
end
$body$;
create or replace function enqueue_v3(p_jobs text, p_keys text, p_edges text, p_group_limits text, p_flows text,
                                   p_queues text, p_now bigint, p_callers boolean)
returns table (id text, known text) language plpgsql
set search_path = taskharbor, pg_temp set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $body$
declare
    queue_names text[] := array(select json_array_elements_text(p_queues::json));
begin
    if not p_callers and current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v3();
    end if;
    if p_edges is null then
        return query
            select * from store_v3(p_jobs, p_keys, p_edges, p_group_limits, p_flows, queue_names, p_now, p_callers);
    else
        begin  -- a savepoint, which an unknown dependency rolls back to
            return query
                select * from store_v3(p_jobs, p_keys, p_edges, p_group_limits, p_flows, queue_names, p_now, p_callers);
        exception when sqlstate 'TH001' then
            return query select null::text, sqlerrm;
        end;
    end if;
end
$body$;
create or replace function enqueue_one_v3(p_id text, p_queue text, p_type text, p_payload text, p_run_at bigint,
                                       p_timeout bigint, p_priority integer, p_attempts integer,
                                       p_max_attempts integer, p_grp text, p_metadata text, p_created_at bigint,
                                       p_now bigint, p_callers boolean)
returns boolean language plpgsql
set search_path = taskharbor, pg_temp set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $body$
declare
    base bigint := nextval('arrival') << 20;
    number integer;
    is_late boolean;
    is_awaited boolean;
begin
    if not p_callers and current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v3();
    end if;
    insert into jobs (id, queue, type, payload, run_at, timeout, priority, attempts, max_attempts, deliveries, lost,
                      grp, group_limit, metadata, created_at, state, wake, due, seq, stored)
    values (p_id, p_queue, p_type, decode(p_payload, 'base64'), p_run_at, p_timeout, p_priority, p_attempts,
            p_max_attempts, 0, 0, p_grp, 0, p_metadata, coalesce(p_created_at, p_now),
            first_state_v3(p_grp, p_run_at, p_now),
            coalesce(p_run_at, 0), greatest(coalesce(p_run_at, 0), p_now), base, base)
    on conflict (id) do nothing;
    get diagnostics number = row_count;
    -- A new read: a job that was in `jobs` a moment ago may have finished since.
    select exists (select from history h where h.id = p_id), exists (select from waiting w where w.queue = p_queue)
    into is_late, is_awaited;
    if is_late then
        delete from jobs j where j.id = p_id;
        return true;
    end if;
    if p_callers and number > 0 and current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_unseen_v3(array[p_id]);
    end if;
    if number > 0 and is_awaited then
        perform send_hints_v3(array[p_queue], p_callers);
    end if;
    return number = 0;
end
$body$;
create or replace function extend_v3(p_given text, p_now bigint, p_until bigint)
returns table (o integer, code integer, ends bigint) language plpgsql
set search_path = taskharbor, pg_temp set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $body$
#variable_conflict use_column
declare
    changes group_change_v3[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v3();
    end if;
    with extended as (
        update jobs j
        set wake = greatest(j.wake, p_until), due = greatest(j.wake, p_until), state = 3,
            note = coalesce(decode(g.note, 'base64'), j.note), open = j.state  -- its state before
        from (select x.place, i.note from json_to_recordset(p_given::json) as i(id text, token text, note text),
                     lateral (select y.ctid as place from jobs y where y.id = i.id collate "C"
                              and y.token = i.token collate "C" and y.state in (3, 4)
                              and y.wake > p_now and (y.wake < p_until or i.note is not null)
                              limit 1 for no key update skip locked) as x) as g
        where j.ctid = g.place
        returning j.queue, j.grp, j.open as was
    )
    select array_agg(row(e.queue, e.grp, 1, -1)::group_change_v3) into changes
    from extended e where e.grp is not null and e.was = 4;
    if changes is not null then  -- for a faster clock their leases had ended
        perform regroup_v3(changes);
    end if;
    return query
        select g.o,
               case when j.id is null and h.id is null then 1
                    when j.id is null or j.state not in (3, 4) then 2
                    when j.token <> g.token then 3
                    when j.wake <= p_now then 4
                    when j.wake >= p_until and (g.note is null or decode(g.note, 'base64') = j.note) then 5
                    else 6 end,
               j.wake
        from json_to_recordset(p_given::json) as g(o integer, id text, token text, note text)
        left join jobs j on j.id = g.id collate "C"
        left join history h on h.id = g.id collate "C";
end
$body$;
create or replace function finish_v3(p_given text, p_now bigint, out positions integer[], out acked text[],
                                  out acked_positions integer[], out changes group_change_v3[])
language plpgsql as $body$
begin
    with gone as (
        delete from jobs j
        using (select x.place, i.*
               from json_to_recordset(p_given::json) as i(o integer, id text, token text, kind smallint, result text,
                                                          attempts integer, last_error text, failed_at bigint,
                                                          reason text, error_class text, fingerprint text,
                                                          trail text),
                    lateral (select y.ctid as place from jobs y where y.id = i.id collate "C" and i.kind in (1, 3, 4)
                             and y.token = i.token collate "C" and y.state in (3, 4) and y.wake > p_now
                             limit 1 for update skip locked) as x) as g
        where j.ctid = g.place
        returning j.*, g.o, g.kind, g.result as g_result, g.attempts as g_attempts, g.last_error as g_last_error,
                  g.failed_at as g_failed_at, g.reason as g_reason, g.error_class as g_error_class,
                  g.fingerprint as g_fingerprint, g.trail as g_trail
    ), kept as (
        insert into history (id, queue, type, payload, run_at, timeout, priority, attempts, max_attempts, deliveries,
                             lost, key, grp, group_limit, depends_on, flow_id, handed_to, metadata, last_error,
                             failed_at, reason, created_at, finished_at, result, state, wake, due, seq, stored, open,
                             worker, began_at, trail, error_class, fingerprint, note, edits, keep_for, settled,
                             settled_as)
        select x.id, x.queue, x.type, x.payload, x.run_at, x.timeout, x.priority,
               case when x.kind = 3 then x.g_attempts else x.attempts end, x.max_attempts, x.deliveries, 0, x.key,
               x.grp, x.group_limit, x.depends_on, x.flow_id, x.handed_to, x.metadata,
               case when x.kind = 1 then x.last_error else coalesce(x.g_last_error, x.g_reason) end,
               case when x.kind = 3 then coalesce(x.g_failed_at, x.failed_at) else x.failed_at end,
               case when x.kind = 1 then x.reason else x.g_reason end, x.created_at, p_now,
               case when x.kind = 1 then decode(x.g_result, 'base64') else x.result end,
               case x.kind when 1 then 5 when 3 then 6 else 7 end,
               0, x.due, x.seq, x.stored, 0, x.worker, x.began_at, coalesce(decode(x.g_trail, 'base64'), x.trail),
               case when x.kind = 3 then x.g_error_class else x.error_class end,
               case when x.kind = 3 then x.g_fingerprint else x.fingerprint end, x.note, x.edits, x.keep_for,
               x.token, x.kind
        from gone x
    )
    select array_agg(gone.o), array_agg(gone.id order by gone.o) filter (where gone.kind = 1),
           array_agg(gone.o order by gone.o) filter (where gone.kind = 1),
           array_agg(left_group_v3(gone.queue, gone.grp, gone.state)) filter (where gone.grp is not null)
    into positions, acked, acked_positions, changes from gone;
end
$body$;
create or replace function first_state_v3(p_grp text, p_run_at bigint, p_now bigint)
returns integer language sql immutable as $body$
    select case when p_grp is null and coalesce(p_run_at, 0) <= p_now then 2 else 1 end;
$body$;
create or replace function flow_after_v3(p_here prune_place)
returns prune_place language plpgsql as $body$
declare
    here prune_place := p_here;
begin
    loop
        select h.queue, h.state, coalesce(h.flow_id, '') into here.queue, here.state, here.flow from history h
        where h.keep_for is null and (h.queue, h.state, coalesce(h.flow_id, '')) > (here.queue, here.state, here.flow)
        order by h.queue, h.state, coalesce(h.flow_id, ''), h.finished_at, h.id limit 1;
        if not found then
            return null;
        end if;
        exit when here.state in (5, 7);
        here.flow := behind_all_v3();  -- skip what is dead, or in an unknown state
    end loop;
    here.finished_at := '-9223372036854775808';
    here.id := '';
    return here;
end
$body$;
create or replace function forget_v3(p_deleted deleted_job_v3[])
returns void language plpgsql as $body$
declare
    ids text[] := array(select d.id from unnest(p_deleted) as d);
    flow text;
begin
    if ids = '{}' then
        return;
    end if;
    delete from edges e where e.ctid = any(array(
        select x.ctid from edges x
        where x.ctid = any(array(select a.ctid from edges a where a.dependency = any(ids)
                                 union select b.ctid from edges b where b.dependent = any(ids)))
        order by x.dependency, x.dependent for update));
    delete from keys k where k.ctid = any(array(
        select y.place from unnest(p_deleted) as x,
            lateral (select z.ctid as place from keys z
                     where z.queue = x.queue and z.key = x.key and z.id = x.id limit 1) as y));
    for flow in select distinct d.flow_id from unnest(p_deleted) as d
                where d.flow_id is not null and exists (select from flows y where y.flow_id = d.flow_id)
                order by 1 loop
        if not exists (select from jobs x where x.flow_id = flow)
           and not exists (select from history x where x.flow_id = flow) then
            delete from flows f where f.flow_id = flow;
        end if;
    end loop;
end
$body$;
create or replace function hand_over_v3(p_old text, p_new text, p_dependents text, p_now bigint)
returns text language plpgsql set search_path = taskharbor, pg_temp set jit = off set enable_seqscan = off as $body$
declare
    base bigint := nextval('arrival') << 20;
    dependents text[] := array(select json_array_elements_text(p_dependents::json));
    met text;
    one record;
    n integer := 0;
    is_known boolean;
    is_done boolean := exists (select from history h where h.id = p_new and h.state + 0 = 5);
    hinted text[] := '{}';
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v3();
    end if;
    with recursive walk(id) as (
        select p_new collate "C"
        union
        select d collate "C" from walk w join records r on r.id = w.id and r.state <> 5, unnest(r.depends_on) as d
    )
    select w.id into met from walk w where w.id = any(dependents) limit 1;
    if met is not null then
        return format('handover: %s depends on %s, which would depend on it; remove one of the edges', p_new, met);
    end if;
    perform from jobs j where j.id = any(dependents) order by j.id for no key update;
    perform from history h where h.id = any(dependents) order by h.id for no key update;
    update history h set handed_to = p_new where h.id = p_old;
    for one in select r.id, r.stored from records r where r.id = any(dependents) order by r.stored loop
        delete from edges e where e.dependency = p_old and e.dependent = one.id;
        continue when not found;
        insert into edges (dependency, dependent) values (p_new, one.id) on conflict do nothing;
        is_known := not found;
        update history h set depends_on = array_replace(h.depends_on, p_old collate "C", p_new collate "C")
        where h.id = one.id;
        update jobs j set depends_on = array_replace(j.depends_on, p_old collate "C", p_new collate "C"),
            open = greatest(coalesce(j.open, 0)::bigint - case when is_known or is_done then 1 else 0 end, -1)
        where j.id = one.id;
        n := n + 1;
        update jobs j
        set state = first_state_v3(j.grp, j.run_at, p_now),
            wake = coalesce(j.run_at, 0), due = greatest(coalesce(j.run_at, 0), p_now), seq = base + n
        where j.id = one.id and j.state = 0 and j.open <= 0;
        if found then
            hinted := hinted || array(select j.queue from jobs j where j.id = one.id);
        end if;
    end loop;
    if hinted <> '{}' then
        perform hint_v3(hinted, false);
    end if;
    return null;
end
$body$;
create or replace function has_dependents_v3(p_id text)
returns boolean language sql stable as $body$
    select exists (select from edges e where e.dependency = p_id
    and (exists (select from jobs j where j.id = e.dependent)
         or exists (select from history h where h.id = e.dependent and h.state + 0 not in (5, 7))));
$body$;
create or replace function hint_v3(p_queues text[], p_callers boolean)
returns void language plpgsql as $body$
begin
    if exists (select from waiting w where w.queue = any(p_queues)) then
        perform send_hints_v3(p_queues, p_callers);
    end if;
end
$body$;
create or replace function hint_queue_v3(p_queue text)
returns void language sql set search_path = taskharbor, pg_temp set jit = off as $body$
    select hint_v3(array[p_queue], false);
$body$;
create or replace function in_turn_v3(p_queues text)
returns text[] language plpgsql as $body$
begin
    if json_array_length(p_queues::json) = 1 then
        return case when not exists (select from queues q where q.queue = p_queues::json ->> 0 and q.paused)
                    then array[p_queues::json ->> 0] end;
    end if;
    return (select array_agg(x.queue order by coalesce(q.served, 0), x.n)
            from json_array_elements_text(p_queues::json) with ordinality as x(queue, n)
            left join queues q on q.queue = x.queue collate "C"
            where not coalesce(q.paused, false));
end
$body$;
create or replace function index_tuples_read_v3()
returns bigint language sql as $body$
    select pg_stat_get_xact_tuples_returned('jobs_line'::regclass)
           + pg_stat_get_xact_tuples_returned('jobs_leases'::regclass)
           + pg_stat_get_xact_tuples_returned('jobs_calendar'::regclass);
$body$;
create or replace function insert_jobs_v3(p_jobs text, p_without text[], p_now bigint, p_base bigint)
returns text[] language plpgsql as $body$
declare
    fresh text[];
    late text[];
begin
    with put as (
        insert into jobs (id, queue, type, payload, run_at, timeout, priority, attempts, max_attempts, deliveries,
                          lost, key, grp, group_limit, depends_on, flow_id, metadata, keep_for, created_at,
                          state, wake, due, seq, stored)
        select g.id, g.queue, g.type, decode(g.payload, 'base64'), g.run_at, g.timeout, coalesce(g.priority, 0),
               coalesce(g.attempts, 0), coalesce(g.max_attempts, 0), 0, 0, decode(g.key, 'base64'), g.grp,
               coalesce(g.group_limit, 0), g.depends_on, g.flow_id, g.metadata, g.keep_for,
               coalesce(g.created_at, p_now),
               case when g.depends_on is not null then 0 else first_state_v3(g.grp, g.run_at, p_now) end,
               coalesce(g.run_at, 0), greatest(coalesce(g.run_at, 0), p_now), p_base + g.o, p_base + g.o
        from json_to_recordset(p_jobs::json) as g(
            o integer, id text, queue text, type text, payload text, run_at bigint, timeout bigint, priority integer,
            attempts integer, max_attempts integer, key text, grp text, group_limit integer, depends_on text[],
            flow_id text, metadata text, keep_for bigint, created_at bigint)
        where not exists (select from unnest(p_without) as a where a = g.id)
        order by g.id collate "C"
        on conflict (id) do nothing
        returning jobs.id
    )
    select coalesce(array_agg(put.id), '{}') into fresh from put;
    -- A new read: a job that was in `jobs` a moment ago may have finished since.
    late := array(select h.id from history h where h.id = any(fresh));
    if late <> '{}' then
        delete from jobs j where j.id = any(late);
        fresh := array(select f from unnest(fresh) as f where f <> all(late));
    end if;
    return fresh;
end
$body$;
create or replace function is_held_v3(p_flow text)
returns boolean language plpgsql stable as $body$
begin
    return exists (select from jobs j where j.flow_id = p_flow)
           or exists (select from history h where coalesce(h.flow_id, '') = p_flow and h.state + 0 = 6);
end
$body$;
create or replace function is_sound_v3(j jobs)
returns boolean language sql immutable as $body$
    select j.type <> '' and j.payload is not null and j.attempts >= 0 and j.max_attempts >= 0
           and j.deliveries >= 0 and j.deliveries < 2147483647 and j.lost >= 0 and j.lost < 2147483647
           and j.created_at >= 0 and j.created_at <= 253402300799999999
           and (j.run_at is null or j.run_at >= 0 and j.run_at <= 253402300799999999)
           and (j.timeout is null or j.timeout >= 1000 and j.timeout <= 2147483647000);
$body$;
create or replace function keep_all_v3(p_ids text[])
returns boolean language plpgsql as $body$
declare
    kept text[];
begin
    if p_ids is null then
        return true;
    end if;
    kept := array(select h.id from history h where h.id = any(p_ids) for key share skip locked);
    kept := kept || array(select j.id from jobs j where j.id = any(p_ids) for key share skip locked);
    -- A new read: what moved from one table to the other meanwhile is in one of them.
    return not exists (select r.id from records r where r.id = any(p_ids) except select unnest(kept) collate "C");
end
$body$;
create or replace function last_of_v3(p_id text)
returns text language plpgsql as $body$
declare
    here text := null;
    next_id text := p_id;
    further text;
begin
    for turn in 1..10000 loop
        exit when next_id is null;
        perform from jobs j where j.id = next_id for key share;
        if found then
            return next_id;
        end if;
        select h.handed_to into further from history h where h.id = next_id for key share;
        if not found then
            perform from jobs j where j.id = next_id for key share;  -- it was requeued between the two reads
            return case when found then next_id else here end;
        end if;
        here := next_id;
        next_id := further;
    end loop;
    return here;
end
$body$;
create or replace function lease_v3(p_ids text[], p_now bigint, p_expires bigint, p_worker text, p_tokens text[])
returns setof reserved_job_v3 language plpgsql as $body$
begin
    return query
        update jobs j  -- the same as in reserve_queue
        set state = 3, wake = p_expires, due = p_expires, token = t.token,
            worker = p_worker, began_at = p_now, deliveries = j.deliveries + 1,
            lost = j.lost + case when j.state = 4 then 1 else 0 end,
            lost_by = case when j.state = 4 then loss_of_v3(j, j.wake) else j.lost_by end,
            run_at = case when j.state = 4 then null else j.run_at end, settled = null, settled_as = null
        from unnest(p_ids, p_tokens[:cardinality(p_ids)]) as t(id, token)
        where j.id = t.id collate "C"
        returning (as_reserved_v3(j)).*;
end
$body$;
create or replace function left_group_v3(p_queue text, p_grp text, p_state integer)
returns group_change_v3 language sql immutable as $body$
    select case when p_state in (2, 4) then row(p_queue, p_grp, 0, -1)::group_change_v3
                else row(p_queue, p_grp, -1, 0)::group_change_v3 end;
$body$;
create or replace function line_up_v3(p_queues text[], p_now bigint, p_scan jsonb)
returns jsonb language plpgsql as $body$
declare
    sorted constant text[] := case when cardinality(p_queues) = 1 then p_queues
                                   else array(select n from unnest(p_queues) as n order by n collate "C") end;
    due_after constant bigint := coalesce((p_scan ->> 'due_after')::bigint, -1);
    read_before bigint;
begin
    insert into queues (queue) select n from unnest(sorted) as n
    where not exists (select from queues q where q.queue = n collate "C") order by n collate "C" on conflict do nothing;
    read_before := index_tuples_read_v3();
    if wait_for_turn_v3(sorted, p_now, due_after) then
        perform promote_v3(sorted, p_now, due_after);
    end if;
    if index_tuples_read_v3() - read_before > 5000 then
        return p_scan || jsonb_build_object('due_after', greatest(p_now - 1000000, 0));
    end if;
    return p_scan;
end
$body$;
create or replace function link_v3(p_edges text, p_fresh text[], p_alias text[], p_known text[], p_now bigint)
returns void language plpgsql as $body$
declare
    ids text[];
    positions integer[];
    dependencies text[];
    stored text[];  -- dependencies that are not new, ...
    current_ids text[];  -- ... and the job that stands for each: locked, so that it cannot finish unseen
    missing record;
begin
    select array_agg(e.id), array_agg(e.pos), array_agg(coalesce(a.known, e.dep))
    into ids, positions, dependencies
    from json_to_recordset(p_edges::json) as e(id text, pos integer, dep text)
    left join unnest(p_alias, p_known) as a(id, known) on a.id = e.dep
    join unnest(p_fresh) as f(id) on f.id = e.id;
    if ids is null then
        return;
    end if;
    select array_agg(x.dep), array_agg(last_of_v3(x.dep)) into stored, current_ids
    from (select distinct d as dep from unnest(dependencies) as d
          where not exists (select from unnest(p_fresh) as f(id) where f.id = d) order by 1) as x;
    select e.id, e.dep into missing
    from unnest(ids, dependencies) as e(id, dep)
    join unnest(stored, current_ids) as n(old, new) on n.old = e.dep
    where n.new is null limit 1;
    if found then
        raise exception using errcode = 'TH001', message = format(
            'depends_on: %s depends on %s, which is not stored; enqueue it before or in the same call',
            missing.id, missing.dep);
    end if;
    if stored is not null then
        select array_agg(coalesce(n.new, e.dep) order by e.i) into dependencies
        from unnest(dependencies) with ordinality as e(dep, i)
        left join unnest(stored, current_ids) as n(old, new) on n.old = e.dep;
    end if;
    insert into edges (dependency, dependent)
    select distinct e.dep, e.id from unnest(ids, dependencies) as e(id, dep) on conflict do nothing;
    perform count_open_v3(ids, positions, dependencies, current_ids, p_now);
end
$body$;
create or replace function list_filters_v3(w jsonb, p_now bigint)
returns text language plpgsql immutable as $body$
declare
    filters text := 'true';
    one text;
begin
    foreach one in array '{queue,type,grp,flow_id,error_class,fingerprint}'::text[] loop
        if w ? one then
            filters := filters || format(case when one in ('error_class', 'fingerprint')  -- null stands for empty
                                              then ' and coalesce(r.%I, '''') = %L' else ' and r.%I = %L' end,
                                         one, w ->> one);
        end if;
    end loop;
    if w ? 'state' then
        filters := filters || format(' and state_of_v3(r.state, r.run_at, r.wake, %s) = %L', p_now, w ->> 'state');
    end if;
    foreach one in array '{since,until}'::text[] loop
        if w ? one then
            filters := filters || format(
                ' and coalesce(case when r.state not between 0 and 4 then r.finished_at end, '
                'r.created_at, 0) %s %s', case one when 'since' then '>=' else '<' end, (w ->> one)::bigint);
        end if;
    end loop;
    return filters;
end
$body$;
create or replace function list_flows_v3(p_after text, p_newest boolean, p_status text, p_since bigint, p_until bigint,
                                      p_limit integer, p_most integer)
returns table (id text, status text, created_at bigint, updated_at bigint, last text) language plpgsql stable
set search_path = taskharbor, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $body$
#variable_conflict use_column
declare
    here text := p_after;
    shown text;
    damaged text[] := array(
        select j.flow_id from jobs j where (j.state < 0 or j.state > 4)
        and j.state not in (5, 7) union all
        select h.flow_id from history h where (h.state < 5 or h.state > 7)
        and h.state not between 0 and 4);
    found_status text;
    made bigint[];
    number integer := 0;
begin
    for turn in 1..p_most loop
        here := next_flow_v3(here, p_newest);
        if here is null then
            return;
        end if;
        found_status := case when here = any(damaged) then 'failed' else status_of_flow_v3(here) end;
        made := span_of_flow_v3(here);
        if (p_status is null or found_status = p_status) and (p_since is null or made[1] >= p_since)
           and (p_until is null or made[1] < p_until) then
            if number = p_limit then
                return query select null::text, null::text, null::bigint, null::bigint, shown;
                return;
            end if;
            return query select here, found_status, made[1], made[2], null::text;
            shown := here;
            number := number + 1;
        end if;
    end loop;
    return query select null::text, null::text, null::bigint, null::bigint, here;
end
$body$;
create or replace function list_ids_v3(p_wanted text, p_newest boolean, p_limit integer, p_most integer, p_now bigint,
                                    out ids text[], out last text)
language plpgsql stable
set search_path = taskharbor, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set enable_hashjoin = off set enable_mergejoin = off set enable_incremental_sort = off set jit = off as $body$
declare
    w constant jsonb := p_wanted::jsonb;
    behind constant text := coalesce(
        'r.id ' || case when p_newest then '< ' else '> ' end || quote_literal(w ->> 'after'), 'true');
    direction constant text := case when p_newest then 'desc' else 'asc' end;
    most constant integer := p_most / case when w ? 'state' and not w ? 'flow_id' then 1 else 2 end;
    held text[];
    part text;
    scanned text;
    found_ids text[];
    stopped text;
begin
    if w ->> 'state' = 'inflight' then
        execute format('select array(select x.id from jobs x where x.state = 3 union all '
                       'select y.id from jobs y where y.state = 4 limit %s)', p_most + 1) into held;
    end if;
    ids := '{}';
    foreach part in array listed_tables_v3(w, case when cardinality(held) <= p_most then held end) loop
        scanned := format('select * from %s and %s order by r.id %s limit %s', part, behind, direction, most);
        execute format('select array(select r.id from (%s) as r where %s limit %s)', scanned, list_filters_v3(w, p_now),
                       p_limit + 1) into found_ids;
        ids := ids || found_ids;
        if cardinality(found_ids) <= p_limit then
            execute format('select r.id from (%s) as r offset %s limit 1', scanned, most - 1) into stopped;
            last := case when p_newest then greatest(last collate "C", stopped) else least(last collate "C", stopped) end;
        end if;
    end loop;
    ids := array(select x from unnest(ids) as x
                 where last is null or case when p_newest then x >= last collate "C" else x <= last collate "C" end);
    if p_newest then
        ids := array(select x from unnest(ids) as x order by x collate "C" desc limit p_limit + 1);
    else
        ids := array(select x from unnest(ids) as x order by x collate "C" limit p_limit + 1);
    end if;
    if cardinality(ids) > p_limit then
        ids := ids[:p_limit];
        last := ids[p_limit];
    end if;
end
$body$;
create or replace function listed_tables_v3(w jsonb, p_held text[])
returns text[] language plpgsql immutable as $body$
declare
    jobs_part text;
    history_part text;
begin
    if w ? 'flow_id' then
        jobs_part := format('r.flow_id = %L', w ->> 'flow_id');
        history_part := jobs_part;
    elsif w ->> 'state' = 'blocked' and w ? 'queue' then
        jobs_part := format('r.state = 0 and r.queue = %L', w ->> 'queue');
    elsif p_held is not null then
        jobs_part := format('r.id = any(%L::text[])', p_held);
    elsif w ->> 'state' in ('blocked', 'scheduled', 'ready', 'inflight') then
        jobs_part := 'true';
    elsif w ->> 'state' = 'done' then
        history_part := 'true';
    elsif w ->> 'state' = 'dlq' and w ? 'queue' then
        history_part := format('r.state = 6 and r.queue = %L', w ->> 'queue');
    elsif w ->> 'state' = 'dlq' then
        history_part := 'r.state = 6';
    elsif w ->> 'state' = 'cancelled' then
        history_part := 'r.state = 7';
    else
        jobs_part := 'true';
        history_part := 'true';
    end if;
    return array_remove(array[
        'jobs r where ' || jobs_part,
        'history r where ' || history_part,
        case when jobs_part is null or jobs_part <> 'true' and not w ? 'flow_id'
             then 'jobs r where (r.state < 0 or r.state > 4)' end,
        case when history_part is null or history_part <> 'true' and not w ? 'flow_id'
             then 'history r where (r.state < 5 or r.state > 7)' end], null);
end
$body$;
create or replace function lock_flow_v3(p_flow text)
returns boolean language plpgsql as $body$
begin
    perform pg_advisory_xact_lock(1952540008, hashtext(current_schema() || '.' || p_flow));
    return pg_try_advisory_xact_lock(1952540010, hashtext(current_schema()));
end
$body$;
create or replace function locked_on_the_way_v3(p_id text)
returns text language plpgsql as $body$
declare
    next_id text := p_id;
    further text;
begin
    for turn in 1..10000 loop
        exit when next_id is null;
        perform from jobs j where j.id = next_id for key share skip locked;
        exit when found;
        select h.handed_to into further from history h where h.id = next_id for key share skip locked;
        if not found then
            -- It is locked, or it moved from one table to the other between the two reads.
            return case when exists (select from records r where r.id = next_id) then next_id end;
        end if;
        next_id := further;
    end loop;
    return null;
end
$body$;
create or replace function loss_of_v3(j jobs, p_ended bigint)
returns text language sql stable as $body$
    select json_build_array(j.deliveries, j.worker, j.began_at, p_ended)::text;
$body$;
create or replace function needs_all_steps_v3(p_queue text, p_now bigint)
returns boolean language plpgsql as $body$
begin
    return exists (select from jobs j where j.queue = p_queue and j.state = 3 and j.wake <= p_now)
        or exists (select from jobs j where j.queue = p_queue and j.state = 1 and j.wake <= p_now)
        or exists (select from groups g where g.queue = p_queue and g.waiting > 0 and g.inflight < g.lim)
        or exists (select from queues q where q.queue = p_queue and q.paused)
        or exists (select from group_limits l where l.queue = p_queue and not l.applied)
        or exists (select from jobs j where j.state < 0 or j.state > 4);
end
$body$;
create or replace function next_flow_v3(p_here text, p_newest boolean)
returns text language plpgsql stable as $body$
begin
    if p_newest then
        return (select max(x.flow_id collate "C") from (
            (select j.flow_id from jobs j where j.flow_id is not null and j.flow_id < coalesce(p_here, behind_all_v3())
             order by j.flow_id desc limit 1)
            union all
            (select h.flow_id from history h where h.flow_id is not null and h.flow_id < coalesce(p_here, behind_all_v3())
             order by h.flow_id desc limit 1)) as x);
    end if;
    return (select min(x.flow_id collate "C") from (
        (select j.flow_id from jobs j where j.flow_id is not null and j.flow_id > coalesce(p_here, '')
         order by j.flow_id limit 1)
        union all
        (select h.flow_id from history h where h.flow_id is not null and h.flow_id > coalesce(p_here, '')
         order by h.flow_id limit 1)) as x);
end
$body$;
create or replace function not_amendable_v3(j jobs, c jsonb)
returns text language sql immutable as $body$
    select case when j.state = 5 then 'done'
                when j.state in (3, 4) then 'under a lease'
                when greatest(coalesce(j.deliveries, 0), 0) <> (c ->> 'deliveries')::integer
                     or greatest(coalesce(j.edits, 0), 0) <> (c ->> 'edits')::integer then 'amended' end;
$body$;
create or replace function note_served_v3(p_queue text)
returns void language plpgsql as $body$
begin
    update queues q set served = nextval('arrival')
    where q.queue = any(array(select x.queue from queues x where x.queue = p_queue for update skip locked));
end
$body$;
create or replace function peek_v3(p_queues text[])
returns boolean language plpgsql stable as $body$
declare
    one text;
begin
    foreach one in array p_queues loop
        continue when exists (select from queues q where q.queue = one and q.paused);
        if exists (select from jobs j where j.queue = one and j.state in (2, 4) and j.grp is null)
           or exists (select from jobs j where j.queue = one and j.state = 1 and j.wake <= 0)
           or exists (select from groups g where g.queue = one and g.waiting > 0 and g.inflight < g.lim) then
            return true;
        end if;
    end loop;
    return false;
end
$body$;
create or replace function prepare_spawn_v3(p_id text, p_flows text, p_dependencies text, p_handover boolean,
                                         out locked text, out dependents text)
language plpgsql set search_path = taskharbor, pg_temp set jit = off set enable_seqscan = off as $body$
declare
    one text;
    waiting_ids text[];
begin
    if p_flows is not null then
        perform share_flows_v3(array(select json_array_elements_text(p_flows::json)));
    end if;
    if p_dependencies is not null then
        for one in select d from json_array_elements_text(p_dependencies::json) as d order by 1 loop
            locked := locked_on_the_way_v3(one);
            if locked is not null then
                return;
            end if;
        end loop;
    end if;
    if p_handover then
        waiting_ids := array(select e.dependent from edges e where e.dependency = p_id);
        perform from jobs j where j.id = any(waiting_ids) order by j.id for no key update;
        perform from history h where h.id = any(waiting_ids) order by h.id for no key update;
        dependents := array_to_json(waiting_ids)::text;
    end if;
end
$body$;
create or replace function promote_v3(p_queues text[], p_now bigint, p_due_after bigint)
returns void language plpgsql as $body$
declare
    one text;
    changes group_change_v3[] := '{}';
begin
    foreach one in array p_queues loop
        changes := changes || promote_scheduled_v3(one, p_now, p_due_after);
        changes := changes || promote_expired_v3(one, p_now, p_due_after);
    end loop;
    changes := changes || set_unknown_states_aside_v3(p_now);
    changes := changes || apply_group_limits_v3(p_queues);
    if cardinality(changes) > 0 then
        perform regroup_v3(changes);
    end if;
end
$body$;
create or replace function promote_expired_v3(p_queue text, p_now bigint, p_due_after bigint)
returns group_change_v3[] language plpgsql as $body$
declare
    changes group_change_v3[] := '{}';
    more group_change_v3[];
    number integer;
begin
    for turn in 1..10 loop
        with up as (
            update jobs j set state = 4
            where j.id = any(array(select x.id from jobs x where x.queue = p_queue and x.state = 3
                                   and x.wake <= p_now and x.wake > p_due_after
                                   order by x.wake limit 1000 for no key update skip locked))
            returning j.queue, j.grp
        )
        select count(*), array_agg(row(up.queue, up.grp, -1, 1)::group_change_v3) filter (where up.grp is not null)
        into number, more from up;
        changes := changes || more;
        exit when number < 1000;
    end loop;
    return changes;
end
$body$;
create or replace function promote_scheduled_v3(p_queue text, p_now bigint, p_due_after bigint)
returns group_change_v3[] language plpgsql as $body$
declare
    changes group_change_v3[] := '{}';
    more group_change_v3[];
    number integer;
begin
    for turn in 1..10 loop
        with up as (
            update jobs j set state = 2
            where j.id = any(array(select x.id from jobs x where x.queue = p_queue and x.state = 1
                                   and x.wake <= p_now and (x.wake <= 0 or x.wake > p_due_after)
                                   order by x.wake limit 1000 for no key update skip locked))
            returning j.queue, j.grp
        )
        select count(*), array_agg(row(up.queue, up.grp, 0, 1)::group_change_v3) filter (where up.grp is not null)
        into number, more from up;
        changes := changes || more;
        exit when number < 1000;
    end loop;
    return changes;
end
$body$;
create or replace function prune_v3(p_before bigint, p_kept_before bigint, p_limit integer)
returns integer language plpgsql
set search_path = taskharbor, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $body$
declare
    number integer;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v3();
    end if;
    number := prune_kept_v3(p_kept_before, p_limit);
    return number + prune_sweep_v3(p_before, p_limit - number);
end
$body$;
create or replace function prune_flow_v3(p_here prune_place, p_before bigint, p_limit integer,
                                      out here prune_place, out number integer, out is_over boolean, out deleted deleted_job_v3[])
language plpgsql as $body$
declare
    ids text[];
    moments bigint[];
    places tid[];
begin
    here := p_here;
    deleted := '{}';
    select coalesce(array_agg(x.id), '{}'), array_agg(x.finished_at) into ids, moments
    from (select h.id, h.finished_at from history h
          where h.keep_for is null and h.queue = p_here.queue collate "C" and h.state = p_here.state
            and coalesce(h.flow_id, '') = p_here.flow collate "C"
            and h.finished_at < p_before and (h.finished_at, h.id) > (p_here.finished_at, p_here.id collate "C")
          order by h.finished_at, h.id limit p_limit) as x;
    number := cardinality(ids);
    is_over := number < p_limit;
    if number > 0 then
        places := array(select h.ctid from history h where h.id = any(ids) and h.state + 0 in (5, 7)
                        and h.finished_at < p_before for update skip locked);
        -- A new read, now that no job can be made dependent on them.
        with gone as (
            delete from history h where h.ctid = any(places) and not has_dependents_v3(h.id)
            returning row(h.id, h.queue, h.key, h.flow_id)::deleted_job_v3 as one
        )
        select coalesce(array_agg(g.one), '{}') into deleted from gone g;
        here.finished_at := moments[number];
        here.id := ids[number];
    end if;
end
$body$;
create or replace function prune_kept_v3(p_kept_before bigint, p_limit integer)
returns integer language plpgsql as $body$
declare
    checks constant integer := least(p_limit, 1000);
    here kept_place;
    ids text[];
    moments bigint[];
    places tid[];
    deleted deleted_job_v3[];
begin
    select s.* into here from kept_place s for update skip locked;
    select coalesce(array_agg(x.id), '{}'), array_agg(x.ends) into ids, moments
    from (select h.id, h.finished_at + least(greatest(h.keep_for, 0), 315360000000000) as ends from history h
          where h.state in (5, 7) and h.keep_for is not null
            and h.finished_at + least(greatest(h.keep_for, 0), 315360000000000) < p_kept_before
            and (h.finished_at + least(greatest(h.keep_for, 0), 315360000000000), h.id)
                > (coalesce(here.ends, '-9223372036854775808'::bigint), coalesce(here.id, '') collate "C")
          order by h.finished_at + least(greatest(h.keep_for, 0), 315360000000000), h.id limit checks) as x;
    if checks < 1 or ids = '{}' and here.one is null then
        return 0;
    end if;
    places := array(select h.ctid from history h where h.id = any(ids) and h.state + 0 in (5, 7)
                    for update skip locked);
    -- A new read, now that no job can be made dependent on them.
    with gone as (
        delete from history h where h.ctid = any(places) and not has_dependents_v3(h.id)
                                and (h.flow_id is null or not is_held_v3(h.flow_id))
        returning row(h.id, h.queue, h.key, h.flow_id)::deleted_job_v3 as one
    )
    select coalesce(array_agg(g.one), '{}') into deleted from gone g;
    perform forget_v3(deleted);
    if cardinality(ids) < checks then
        delete from kept_place s where s.one = here.one;
    elsif here.one then
        update kept_place s set ends = moments[checks], id = ids[checks];
    elsif cardinality(deleted) < checks then
        insert into kept_place (ends, id) values (moments[checks], ids[checks]) on conflict do nothing;
    end if;
    return cardinality(deleted);
end
$body$;
create or replace function prune_sweep_v3(p_before bigint, p_limit integer)
returns integer language plpgsql as $body$
declare
    beginning constant prune_place := (true, '', 0, '', '-9223372036854775808'::bigint, '');
    here prune_place;
    began prune_place;
    is_ours boolean;
    is_wrapped boolean := false;
    checks integer := 5000;  -- left for jobs and flows that are held back
    read_before constant bigint := prune_tuples_read_v3();
    batch record;
    deleted deleted_job_v3[] := '{}';
begin
    select s.* into here from prune_place s for update skip locked;
    is_ours := found;
    if not is_ours then  -- this is the first call of all, or another one has the row locked
        here := beginning;
    end if;
    began := here;
    while cardinality(deleted) < p_limit and checks > 0
          and prune_tuples_read_v3() - read_before < 20000 + 10 * p_limit loop
        if here.flow = '' or not is_held_v3(here.flow) then
            select * into batch from prune_flow_v3(here, p_before, least(p_limit - cardinality(deleted), 500));
            deleted := deleted || batch.deleted;
            checks := checks - batch.number + cardinality(batch.deleted);
            here := batch.here;
            continue when not batch.is_over;
        end if;
        checks := checks - 1;
        here := flow_after_v3(here);
        if here is null then
            here := beginning;
            exit when is_wrapped or began = here;
            is_wrapped := true;
        else
            exit when is_wrapped and (here.queue, here.state, here.flow) > (began.queue, began.state, began.flow);
        end if;
    end loop;
    perform forget_v3(deleted);
    if is_ours then
        update prune_place s
        set queue = here.queue, state = here.state, flow = here.flow, finished_at = here.finished_at, id = here.id
        where here <> began;
    else
        insert into prune_place values (here.*) on conflict do nothing;
    end if;
    delete from groups g where g.ctid = any(array(
        select x.ctid from groups x where x.waiting = 0 and x.inflight = 0 limit 1000 for update skip locked));
    return cardinality(deleted);
end
$body$;
create or replace function prune_tuples_read_v3()
returns bigint language sql as $body$
    select pg_stat_get_xact_tuples_returned('history_queue'::regclass)
           + pg_stat_get_xact_tuples_returned('history_held'::regclass)
           + pg_stat_get_xact_tuples_returned('jobs_flow'::regclass);
$body$;
create or replace function put_back_v3(j jobs, p_now bigint, p_run_at bigint, p_reset boolean, p_seq bigint)
returns void language plpgsql as $body$
begin
    delete from history x where x.id = j.id;
    delete from jobs x where x.id = j.id;
    j.reason := null;
    j.finished_at := null;
    j.lost := 0;
    j.run_at := p_run_at;
    j.token := null;
    j.lost_by := null;
    j.note := null;
    j.open := 0;
    if p_reset then
        j.attempts := 0;
    end if;
    if j.depends_on is not null then
        insert into edges (dependency, dependent)
        select distinct r.id, j.id from records r where r.id = any(j.depends_on) and r.id <> j.id
        on conflict do nothing;
        j.open := (select count(*) from edges e where e.dependent = j.id
                   and not exists (select from history h where h.id = e.dependency and h.state + 0 = 5));
    end if;
    j.wake := coalesce(p_run_at, 0);
    j.due := greatest(coalesce(p_run_at, 0), p_now);
    j.seq := p_seq;
    j.state := case when j.open > 0 then 0 else first_state_v3(j.grp, p_run_at, p_now) end;
    insert into jobs select (j).*;
end
$body$;
create or replace function queue_names_v3()
returns setof text language plpgsql stable
set search_path = taskharbor, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan as $body$
declare
    strange text[] := array(select j.queue from jobs j where j.state < 0 or j.state > 4);
    here text collate "C" := '';
begin
    loop
        here := (select min(x.queue collate "C") from (
            (select j.queue from jobs j where j.queue > here and j.state in (2, 4) and j.grp is null
             order by j.queue limit 1)
            union all
            (select j.queue from jobs j where j.queue > here and j.state in (2, 4) and j.grp is not null
             order by j.queue limit 1)
            union all
            (select j.queue from jobs j where j.queue > here and j.state = 1 order by j.queue limit 1)
            union all
            (select j.queue from jobs j where j.queue > here and j.state = 3 order by j.queue limit 1)
            union all
            (select j.queue from jobs j where j.queue > here and j.state = 0 order by j.queue limit 1)
            union all
            (select h.queue from history h where h.queue > here and h.keep_for is null order by h.queue limit 1)
            union all
            (select h.queue from history h where h.queue > here and h.keep_for is not null order by h.queue limit 1)
            union all
            (select s from unnest(strange) as s where s > here collate "C" order by s collate "C" limit 1)) as x);
        exit when here is null;
        return next here;
    end loop;
end
$body$;
create or replace function rare_columns_v3(j jobs)
returns text language sql stable as $body$
    select case when j.key is null and j.grp is null and j.depends_on is null and j.flow_id is null
                     and j.metadata is null and j.last_error is null and j.failed_at is null and j.reason is null
                     and j.handed_to is null and j.finished_at is null and j.result is null and j.group_limit = 0
                     and j.trail is null and j.error_class is null and j.fingerprint is null and j.note is null
                     and j.edits is null and j.keep_for is null and j.lost_by is null
                then null
                else json_build_array(encode(j.key, 'hex'), j.grp, j.group_limit, j.depends_on, j.flow_id, j.handed_to,
                                      j.metadata, j.last_error, j.failed_at, j.reason, j.finished_at,
                                      encode(j.result, 'hex'), encode(j.trail, 'hex'), j.error_class, j.fingerprint,
                                      encode(j.note, 'hex'), j.edits, j.keep_for, j.lost_by)::text end;
$body$;
create or replace function records_of_v3(p_ids text[])
returns setof jobs language plpgsql stable
set search_path = taskharbor, pg_temp set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $body$
begin
    return query select * from jobs j where j.id = any(p_ids);
    return query select * from history h where h.id = any(p_ids);
end
$body$;
create or replace function recount_waiting_v3(p_queue text, p_grp text, p_taken text[])
returns void language plpgsql as $body$
begin
    update groups g
    set waiting = (select count(*) from jobs j
                   where j.queue = p_queue and j.grp = p_grp and j.state in (2, 4))
                  - (select count(*) from jobs j where j.id = any(p_taken) and j.grp = p_grp)
    where g.queue = p_queue and g.grp = p_grp;
end
$body$;
create or replace function refusals_v3(p_given text, p_now bigint, p_applied integer[])
returns table (o integer, code integer, ends bigint) language plpgsql as $body$
#variable_conflict use_column
begin
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
        where p_applied is null or g.o <> all(p_applied);
end
$body$;
create or replace function refuse_isolation_v3()
returns void language plpgsql as $body$
begin
    raise exception using errcode = 'TH002', message = format(
        'expected a transaction in the isolation read committed, got %s', current_setting('transaction_isolation'));
end
$body$;
create or replace function refuse_outdated_v3(p_keys text, p_flows text)
returns void language plpgsql as $body$
declare
    put text[];
begin
    if p_keys is not null then
        perform from keys k
        where (k.queue, k.key) in (select g.queue collate "C", decode(g.key, 'base64')
                                   from json_to_recordset(p_keys::json) as g(queue text, key text))
        order by k.queue, k.key for key share;
    end if;
    if p_flows is not null then
        with added as (
            insert into flows (flow_id) select distinct f from json_array_elements_text(p_flows::json) as f order by 1
            on conflict do nothing returning flow_id
        )
        select array_agg(a.flow_id) into put from added a;
        delete from flows f where f.flow_id = any(put);
    end if;
end
$body$;
create or replace function refuse_unseen_v3(p_ids text[])
returns void language plpgsql as $body$
begin
    insert into history (id, queue, state) select i, '', 0 from unnest(p_ids) as i on conflict do nothing;
    delete from history h where h.id = any(p_ids) and h.state + 0 = 0;
end
$body$;
create or replace function register_waiter_v3(p_queues text[], p_waiter text)
returns boolean language plpgsql
set search_path = taskharbor, pg_temp set jit = off set enable_seqscan = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan as $body$
begin
    perform set_config('synchronous_commit', 'off', true);
    insert into waiting (queue, waiter) select q, p_waiter from unnest(p_queues) as q order by 1 on conflict do nothing;
    -- Once a minute, not each time: while a row is locked no enqueue can take it, and so none sends a hint.
    update waiting w set said_at = now()
    where w.queue = any(p_queues) and w.waiter = p_waiter and w.said_at < now() - interval '1 minute';
    return peek_v3(p_queues);
end
$body$;
create or replace function regroup_v3(p_changes group_change_v3[])
returns void language plpgsql as $body$
begin
    insert into groups as g (queue, grp, lim, inflight, waiting, served)
    select x.queue, x.grp,
           coalesce((select l.lim from group_limits l where l.queue = x.queue and l.grp = x.grp), 1),
           sum(x.inflight), sum(x.waiting), nextval('arrival')
    from unnest(p_changes) as x
    group by x.queue, x.grp
    order by x.queue, x.grp
    on conflict (queue, grp) do update
    set inflight = least(greatest(g.inflight::bigint + excluded.inflight, 0), 2147483647),
        waiting = least(greatest(g.waiting::bigint + excluded.waiting, 0), 2147483647),
        lim = excluded.lim;
end
$body$;
create or replace function rejoined_v3(j jobs, p_now bigint, p_seq bigint)
returns jobs language plpgsql immutable as $body$
begin
    j.state := first_state_v3(j.grp, j.run_at, p_now);
    j.wake := coalesce(j.run_at, 0);
    j.due := greatest(coalesce(j.run_at, 0), p_now);
    j.seq := p_seq;
    return j;
end
$body$;
create or replace function release_v3(p_worker text, p_now bigint, p_keep text, out released integer, out locked integer)
language plpgsql set search_path = taskharbor, pg_temp set jit = off set enable_seqscan = off as $body$
declare
    base bigint := nextval('arrival') << 20;
    kept text[] := array(select json_array_elements_text(p_keep::json));
    candidates text[];
    ids text[];
    changes group_change_v3[];
    hinted text[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v3();
    end if;
    -- Found through the indexes of leased jobs; checked again once they are locked.
    candidates := array(select x.id from jobs x where x.state = 3 and x.worker = p_worker
                        union all select x.id from jobs x where x.state = 4 and x.worker = p_worker);
    ids := array(select j.id from jobs j
                 where j.id = any(candidates) and j.state in (3, 4)
                   and j.worker = p_worker and j.wake > p_now and j.token <> all(kept)
                 for no key update skip locked);
    released := cardinality(ids);
    locked := (select count(*) from jobs j
               where j.id = any(candidates) and j.state in (3, 4)
                 and j.worker = p_worker and j.wake > p_now and j.token <> all(kept)) - released;
    if ids = '{}' then
        return;
    end if;
    select array_agg(left_group_v3(j.queue, j.grp, j.state)) filter (where j.grp is not null),
           array_agg(distinct j.queue)
    into changes, hinted from jobs j where j.id = any(ids);
    update jobs j
    set state = first_state_v3(j.grp, null, p_now), wake = 0, due = p_now, seq = base + x.n, run_at = null,
        lost = least(j.lost, 2147483646) + 1, token = null, lost_by = loss_of_v3(j, p_now)
    from (select y.id, row_number() over (order by y.seq) as n from jobs y where y.id = any(ids)) as x
    where j.id = x.id;
    if changes is not null then
        perform regroup_v3(changes);
    end if;
    perform hint_v3(hinted, false);
end
$body$;
create or replace function release_dependents_v3(p_done text[], p_positions integer[], p_now bigint, p_base bigint,
                                              out positions integer[], out queues text[])
language plpgsql as $body$
declare
    dependents text[];
    counts integer[];
    places integer[];
begin
    positions := '{}';
    select array_agg(x.dependent), array_agg(x.n), array_agg(x.o) into dependents, counts, places
    from (select e.dependent, count(*)::integer as n, max(a.o) as o
          from unnest(p_done, p_positions) as a(id, o) join edges e on e.dependency = a.id collate "C"
          group by e.dependent) as x;
    if dependents is null then
        return;
    end if;
    perform from jobs j where j.id = any(dependents) and j.state = 0 order by j.id for no key update;
    with fewer as (
        update jobs j set open = greatest(coalesce(j.open, 0)::bigint - x.n, -1)  -- whatever a damaged record holds
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
        set state = first_state_v3(j.grp, j.run_at, p_now),
            wake = coalesce(j.run_at, 0), due = greatest(coalesce(j.run_at, 0), p_now), seq = p_base + x.o + x.k
        from unnest(dependents, places) with ordinality as x(id, o, k)
        where j.id = x.id collate "C"
        returning j.queue
    )
    select array_agg(distinct up.queue) into queues from up;
    positions := places;
end
$body$;
create or replace function requeue_v3(p_ids text, p_now bigint, p_run_at bigint, p_reset boolean)
returns text[] language plpgsql set search_path = taskharbor, pg_temp set jit = off set enable_seqscan = off as $body$
declare
    base bigint := nextval('arrival') << 20;
    results text[] := '{}';
    hinted text[] := '{}';
    resumed text[] := '{}';
    one text;
    j jobs;
    n integer := 0;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v3();
    end if;
    for one in select json_array_elements_text(p_ids::json) loop
        n := n + 1;
        select x.* into j from history x where x.id = one and x.state + 0 in (6, 7)
        for update skip locked;
        if not found then
            select x.* into j from jobs x where x.id = one and x.state + 0 not between 0 and 4
            for update skip locked;
        end if;
        if not found then
            results := results || coalesce(
                (select case when r.state not between 0 and 5 then 'locked'
                             else state_of_v3(r.state, r.run_at, r.wake, p_now) end
                 from records r where r.id = one), 'unknown');
        elsif not keep_all_v3(j.depends_on) then
            results := results || 'locked'::text;
        else
            perform put_back_v3(j, p_now, p_run_at, p_reset, base + n);
            hinted := hinted || j.queue;
            resumed := resumed || array_remove(array[j.flow_id], null);
            results := results || null::text;
        end if;
    end loop;
    if resumed <> '{}' then
        delete from flows f where f.ctid = any(array(
            select x.ctid from flows x where x.flow_id = any(resumed) order by x.flow_id for update));
    end if;
    if hinted <> '{}' then
        perform hint_v3(hinted, false);
    end if;
    return results;
end
$body$;
create or replace function reserve_again_v3(p_queues text, p_now bigint, p_expires bigint, p_limit integer, p_worker text,
                                         p_tokens text, p_scan_from text, p_durable boolean)
returns setof reserved_job_v3 language plpgsql
set search_path = taskharbor, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $body$
declare
    ids text[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v3();
    end if;
    ids := array(
        select j.id from jobs j, json_array_elements_text(p_queues::json) as q
        where j.queue = q and j.state = 3 and j.wake = p_expires
          and j.token in (select unnest(string_to_array(p_tokens, ','))));
    if ids <> '{}' then
        return query select (as_reserved_v3(j)).* from jobs j where j.id = any(ids);
    else
        return query select * from reserve_queues_v3(p_queues, p_now, p_expires, p_limit, p_worker, p_tokens, p_scan_from,
                                                  p_durable);
    end if;
end
$body$;
create or replace function reserve_queue_v3(p_queue text, p_now bigint, p_expires bigint, p_limit integer, p_worker text,
                                         p_tokens text, p_durable boolean)
returns setof reserved_job_v3 language plpgsql
set search_path = taskharbor, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $body$
declare
    tokens constant text[] := string_to_array(p_tokens, ',');
    read_before bigint := index_tuples_read_v3();
    number integer;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v3();
    end if;
    if not p_durable then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    if needs_all_steps_v3(p_queue, p_now) or index_tuples_read_v3() - read_before >= 5000 then
        return query select * from reserve_queues_v3(json_build_array(p_queue)::text, p_now, p_expires, p_limit, p_worker,
                                                  p_tokens, null, p_durable);
        return;
    end if;
    read_before := index_tuples_read_v3();
    return query
        with line as materialized (
            select j.ctid as place, is_sound_v3(j) as sound
            from jobs j
            where j.queue = p_queue and j.state in (2, 4) and j.grp is null and j.wake <= p_now
            order by j.priority desc, j.due, j.seq
            limit p_limit
            for no key update skip locked
        )
        update jobs j  -- the same as in lease
        set state = 3, wake = p_expires, due = p_expires, token = tokens[t.n],
            worker = p_worker, began_at = p_now, deliveries = j.deliveries + 1,
            lost = j.lost + case when j.state = 4 then 1 else 0 end,
            lost_by = case when j.state = 4 then loss_of_v3(j, j.wake) else j.lost_by end,
            run_at = case when j.state = 4 then null else j.run_at end, settled = null, settled_as = null
        from (select l.place, row_number() over () as n from line l where l.sound) as t
        where j.ctid = t.place
        returning (as_reserved_v3(j)).*;
    get diagnostics number = row_count;
    if index_tuples_read_v3() - read_before > 1000 + 10 * p_limit then
        return next scan_start_v3(jsonb_build_object('=' || p_queue, start_at_head_v3(p_queue, p_now)));
    elsif number < p_limit and exists (select from jobs j where j.queue = p_queue and j.state in (2, 4)
                                       and j.grp is null and j.wake <= p_now) then
        return query select * from reserve_rest_v3(p_queue, p_now, p_expires, p_limit, p_worker, tokens, number);
    end if;
end
$body$;
create or replace function reserve_queues_v3(p_queues text, p_now bigint, p_expires bigint, p_limit integer, p_worker text,
                                          p_tokens text, p_scan_from text, p_durable boolean)
returns setof reserved_job_v3 language plpgsql
set search_path = taskharbor, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $body$
declare
    tokens constant text[] := string_to_array(p_tokens, ',');
    given constant jsonb := coalesce(p_scan_from::jsonb, '{}');
    scan jsonb;
    names text[];
    full_shares text[] := '{}';  -- queues that gave all they were asked for, and may have more
    taken text[] := '{}';
    ids text[];
    one text;
    left_over integer := p_limit;
    share integer;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v3();
    end if;
    if not p_durable then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    names := in_turn_v3(p_queues);
    if names is null then
        return;
    end if;
    scan := line_up_v3(names, p_now, given);
    for n in reverse cardinality(names)..1 loop  -- n queues are left to share what is left
        one := names[cardinality(names) - n + 1];
        share := (left_over + n - 1) / n;
        continue when share < 1;
        select t.ids, t.scan into ids, scan from take_measured_v3(one, p_now, share, scan) as t;
        if cardinality(ids) = share then
            full_shares := full_shares || one;
        end if;
        taken := taken || ids;
        left_over := left_over - cardinality(ids);
        if cardinality(names) > 1 and cardinality(ids) > 0 then
            perform note_served_v3(one);
        end if;
    end loop;
    if taken <> '{}' then
        return query select * from lease_v3(taken, p_now, p_expires, p_worker, tokens);
    end if;
    -- Fair shares are not caps: what is unused goes to the queues that still have work.
    foreach one in array full_shares loop
        exit when left_over < 1;
        ids := take_v3(one, p_now, left_over, start_of_v3(scan, one));
        return query select * from lease_v3(ids, p_now, p_expires, p_worker, tokens[p_limit - left_over + 1:]);
        left_over := left_over - cardinality(ids);
    end loop;
    if scan <> given then
        return next scan_start_v3(scan);
    end if;
end
$body$;
create or replace function reserve_rest_v3(p_queue text, p_now bigint, p_expires bigint, p_limit integer, p_worker text,
                                        p_tokens text[], p_number integer)
returns setof reserved_job_v3 language plpgsql as $body$
declare
    tokens text[] := p_tokens;
begin
    if p_number > 0 then
        tokens := array(
            select x.t from (select unnest(p_tokens) collate "C" as t except
                             select j.token from jobs j
                             where j.queue = p_queue and j.state = 3 and j.wake = p_expires) as x
            order by x.t);
    end if;
    return query select * from lease_v3(take_ungrouped_v3(p_queue, p_now, p_limit - p_number), p_now, p_expires, p_worker, tokens);
end
$body$;
create or replace function result_of_v3(p_id text)
returns bytea language plpgsql stable set search_path = taskharbor, pg_temp set jit = off set enable_seqscan = off as $body$
declare
    last_result bytea := null;
    next_id text := p_id;
    here record;
begin
    for turn in 1..10000 loop
        exit when next_id is null;
        select r.result, r.handed_to into here from records r where r.id = next_id;
        exit when not found;
        last_result := here.result;
        next_id := here.handed_to;
    end loop;
    return last_result;
end
$body$;
create or replace function retry_jobs_v3(p_given text, p_now bigint, p_base bigint, p_released integer[],
                                      out positions integer[], out queues text[], out changes group_change_v3[])
language plpgsql as $body$
begin
    with back as (
        update jobs j
        set state = first_state_v3(j.grp, g.run_at, p_now),
            wake = coalesce(g.run_at, 0), due = greatest(coalesce(g.run_at, 0), p_now),
            seq = p_base + g.o + (select count(*) from unnest(p_released) as r where r < g.o),
            run_at = g.run_at, attempts = g.attempts, last_error = coalesce(g.last_error, j.last_error),
            failed_at = coalesce(g.failed_at, j.failed_at),
            lost = case when g.attempts = j.attempts then j.lost else 0 end,
            error_class = coalesce(g.error_class, j.error_class),
            fingerprint = coalesce(g.fingerprint, j.fingerprint), trail = coalesce(decode(g.trail, 'base64'), j.trail),
            token = null, settled = j.token, settled_as = 2,
            open = j.state  -- its state before: `returning` shows new values only
        from (select x.place, i.*
              from json_to_recordset(p_given::json) as i(o integer, id text, token text, kind smallint,
                                                         run_at bigint, attempts integer, last_error text,
                                                         failed_at bigint, error_class text, fingerprint text,
                                                         trail text),
                   lateral (select y.ctid as place from jobs y where y.id = i.id collate "C" and i.kind = 2
                            and y.token = i.token collate "C" and y.state in (3, 4) and y.wake > p_now
                            limit 1 for no key update skip locked) as x) as g
        where j.ctid = g.place
        returning j.queue, j.grp, j.open as was, g.o
    )
    select array_agg(back.o), array_agg(back.queue),
           array_agg(left_group_v3(back.queue, back.grp, back.was)) filter (where back.grp is not null)
    into positions, queues, changes from back;
end
$body$;
create or replace function scan_start_v3(p_scan jsonb)
returns reserved_job_v3 language plpgsql immutable as $body$
declare
    made reserved_job_v3;
begin
    made.token := p_scan::text;
    return made;
end
$body$;
create or replace function send_hints_v3(p_queues text[], p_callers boolean)
returns void language plpgsql as $body$
declare
    sent bigint;
begin
    if p_callers and current_setting('taskharbor.hints', true) = 'off' then
        return;
    end if;
    if p_callers then
        select count(pg_notify('taskharbor:' || md5(current_schema()), x.queue)) into sent
        from (select distinct w.queue from waiting w where w.queue = any(p_queues)) as x;
    else
        with gone as (
            delete from waiting w
            where w.ctid = any(array(select x.ctid from waiting x where x.queue = any(p_queues) for update skip locked))
            returning w.queue
        )
        select count(pg_notify('taskharbor:' || md5(current_schema()), x.queue)) into sent
        from (select distinct g.queue from gone g) as x;
    end if;
end
$body$;
create or replace function set_aside_v3(p_ids text[], p_now bigint)
returns integer language plpgsql as $body$
declare
    number integer;
begin
    with gone as (
        delete from jobs j where j.ctid = any(array(
            select x.ctid from jobs x where x.id = any(p_ids) for update skip locked))
        returning j.*
    )
    insert into history select (x).* from (
        select set_finished_v3(gone, 6::smallint, 'damaged record: ' || damage_of_v3(gone), p_now) as x from gone) as y;
    get diagnostics number = row_count;
    return number;
end
$body$;
create or replace function set_finished_v3(j jobs, p_state smallint, p_reason text, p_now bigint)
returns jobs language plpgsql immutable as $body$
begin
    j.state := p_state;
    j.reason := p_reason;
    j.finished_at := p_now;
    j.token := null;
    return j;
end
$body$;
create or replace function set_reserved_aside_v3(p_given text, p_now bigint)
returns void language plpgsql
set search_path = taskharbor, pg_temp set enable_seqscan = off set jit = off as $body$
declare
    one record;
    j jobs;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v3();
    end if;
    for one in
        select g.id, g.token, g.reason from json_to_recordset(p_given::json) as g(id text, token text, reason text)
    loop
        perform from jobs x where x.id = one.id and x.token = one.token for update skip locked;
        continue when not found;
        delete from jobs x where x.id = one.id returning x.* into j;
        if j.grp is not null then
            perform regroup_v3(array[left_group_v3(j.queue, j.grp, j.state)]);
            perform hint_v3(array[j.queue], false);
        end if;
        j := set_finished_v3(j, 6::smallint, 'damaged record: ' || one.reason, p_now);
        insert into history select (j).*;
    end loop;
end
$body$;
create or replace function set_unknown_states_aside_v3(p_now bigint)
returns group_change_v3[] language plpgsql as $body$
declare
    ids text[] := array(select j.id from jobs j where j.state < 0 or j.state > 4
                        limit 1000 for update skip locked);
    changes group_change_v3[];
begin
    if ids <> '{}' then
        select array_agg(row(j.queue, j.grp, -1, 0)::group_change_v3) into changes
        from jobs j where j.id = any(ids) and j.grp is not null and j.token is not null;
        perform set_aside_v3(ids, p_now);
    end if;
    return changes;
end
$body$;
create or replace function settle_v3(p_given text, p_now bigint, p_release boolean)
returns table (o integer, code integer, ends bigint) language plpgsql
set search_path = taskharbor, pg_temp set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $body$
#variable_conflict use_column
declare
    base bigint := nextval('arrival') << 20;
    finished record;
    retried record;
    released_positions integer[] := '{}';
    released_queues text[];
    applied integer[];
    changes group_change_v3[];
    hinted text[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v3();
    end if;
    select * into finished from finish_v3(p_given, p_now);
    applied := finished.positions;
    changes := finished.changes;
    -- A new read: an edge that was added while we waited for the job is visible now.
    if finished.acked is not null and p_release and exists (select from edges) then
        select r.positions, r.queues into released_positions, released_queues
        from release_dependents_v3(finished.acked, finished.acked_positions, p_now, base) as r;
    end if;
    if strpos(p_given, '"kind":2') > 0 then
        select * into retried from retry_jobs_v3(p_given, p_now, base, released_positions);
        applied := applied || retried.positions;
        changes := changes || retried.changes;
        hinted := retried.queues;
    end if;
    if cardinality(changes) > 0 then
        perform regroup_v3(changes);
        hinted := hinted || array(select c.queue from unnest(changes) as c);
    end if;
    hinted := hinted || released_queues;
    if hinted is not null then
        perform hint_v3(hinted, false);
    end if;
    if cardinality(applied) is distinct from json_array_length(p_given::json) then
        return query select * from refusals_v3(p_given, p_now, applied);
    end if;
end
$body$;
create or replace function share_flows_v3(p_flows text[])
returns void language plpgsql as $body$
begin
    if cardinality(p_flows) > 64 then
        perform pg_advisory_xact_lock_shared(1952540010, hashtext(current_schema()));
    else
        perform pg_advisory_xact_lock_shared(1952540008, x.key)
        from (select distinct hashtext(current_schema() || '.' || f) as key from unnest(p_flows) as f order by 1) as x;
    end if;
end
$body$;
create or replace function span_of_flow_v3(p_flow text)
returns bigint[] language plpgsql stable as $body$
begin
    return array[
        (select coalesce(x.created_at, 0) from (
            (select j.flow_id, j.id, j.created_at from jobs j
             where j.flow_id is not null and (j.flow_id, j.id) >= (p_flow, '') order by j.flow_id, j.id limit 1)
            union all
            (select h.flow_id, h.id, h.created_at from history h
             where h.flow_id is not null and (h.flow_id, h.id) >= (p_flow, '') order by h.flow_id, h.id limit 1)) as x
         where x.flow_id = p_flow order by x.id limit 1),
        (select coalesce(x.created_at, 0) from (
            (select j.flow_id, j.id, j.created_at from jobs j
             where j.flow_id is not null and (j.flow_id, j.id) <= (p_flow, behind_all_v3())
             order by j.flow_id desc, j.id desc limit 1)
            union all
            (select h.flow_id, h.id, h.created_at from history h
             where h.flow_id is not null and (h.flow_id, h.id) <= (p_flow, behind_all_v3())
             order by h.flow_id desc, h.id desc limit 1)) as x
         where x.flow_id = p_flow order by x.id desc limit 1)];
end
$body$;
create or replace function start_at_head_v3(p_queue text, p_now bigint)
returns jsonb language plpgsql as $body$
begin
    return coalesce(
        (select jsonb_build_array(j.priority, j.due, j.seq - 1) from jobs j
         where j.queue = p_queue and j.state in (2, 4) and j.grp is null
         order by j.priority desc, j.due, j.seq limit 1),
        jsonb_build_array(0, greatest(p_now - 60000000, 0), 0));
end
$body$;
create or replace function start_of_v3(p_scan jsonb, p_queue text)
returns bigint[] language sql immutable as $body$
    select case when p_scan ? ('=' || p_queue) then array[(p_scan -> ('=' || p_queue) ->> 0)::bigint,
        (p_scan -> ('=' || p_queue) ->> 1)::bigint, (p_scan -> ('=' || p_queue) ->> 2)::bigint] end;
$body$;
create or replace function state_of_v3(p_state integer, p_run_at bigint, p_wake bigint, p_now bigint)
returns text language sql immutable as $body$
    select case p_state when 0 then 'blocked'
                        when 1 then case when p_run_at > p_now then 'scheduled' else 'ready' end
                        when 2 then case when p_run_at > p_now then 'scheduled' else 'ready' end
                        when 3 then case when p_wake > p_now then 'inflight' else 'ready' end
                        when 4 then case when p_wake > p_now then 'inflight' else 'ready' end
                        when 5 then 'done' when 6 then 'dlq' when 7 then 'cancelled'
                        else 'dlq' end;
$body$;
create or replace function status_of_flow_v3(p_flow text)
returns text language plpgsql stable as $body$
begin
    if exists (select from history h where coalesce(h.flow_id, '') = p_flow and h.state + 0 = 6) then
        return 'failed';
    elsif exists (select from history h where coalesce(h.flow_id, '') = p_flow and h.state + 0 = 7
                  and h.flow_id is not null) then
        return 'cancelled';
    elsif exists (select from jobs j where j.flow_id = p_flow) then
        return 'running';
    end if;
    return 'succeeded';
end
$body$;
create or replace function store_v3(p_jobs text, p_keys text, p_edges text, p_group_limits text, p_flows text,
                                 p_queues text[], p_now bigint, p_callers boolean)
returns table (id text, known text) language plpgsql as $body$
#variable_conflict use_column
declare
    base bigint := nextval('arrival') << 20;
    alias_ids text[] := '{}';  -- jobs whose idempotency key belongs to another job, ...
    alias_known text[] := '{}';  -- ... and that job
    fresh text[];
begin
    if p_flows is not null then
        perform share_flows_v3(array(select json_array_elements_text(p_flows::json)));
    end if;
    if p_keys is not null then
        select k.ids, k.known into alias_ids, alias_known from claim_keys_v3(p_keys) as k;
    end if;
    fresh := insert_jobs_v3(p_jobs, alias_ids, p_now, base);
    if p_callers and current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_unseen_v3(fresh);
        perform refuse_outdated_v3(p_keys, p_flows);
    end if;
    if cardinality(fresh) + cardinality(alias_ids) < json_array_length(p_jobs::json) then
        if p_keys is not null then
            perform drop_unused_keys_v3(p_keys, fresh);
        end if;
        return query
            select g.id, g.id from json_to_recordset(p_jobs::json) as g(id text)
            where not exists (select from unnest(fresh) as f where f = g.id)
              and not exists (select from unnest(alias_ids) as a where a = g.id);
    end if;
    if alias_ids <> '{}' then
        return query select a, k from unnest(alias_ids, alias_known) as x(a, k);
    end if;
    if p_group_limits is not null then
        perform store_group_limits_v3(p_group_limits, fresh);
    end if;
    if p_edges is not null then
        perform link_v3(p_edges, fresh, alias_ids, alias_known, p_now);
    end if;
    if p_flows is not null then
        perform cancel_in_cancelled_flows_v3(p_flows, fresh, p_now);
    end if;
    perform hint_v3(p_queues, p_callers);
end
$body$;
create or replace function store_amended_v3(j jobs)
returns void language plpgsql as $body$
begin
    update jobs x
    set payload = j.payload, run_at = j.run_at, priority = j.priority, max_attempts = j.max_attempts,
        timeout = j.timeout, metadata = j.metadata, edits = j.edits, state = j.state, wake = j.wake, due = j.due, seq = j.seq
    where x.id = j.id;
    if not found then
        update history x
        set payload = j.payload, run_at = j.run_at, priority = j.priority, max_attempts = j.max_attempts,
            timeout = j.timeout, metadata = j.metadata, edits = j.edits
        where x.id = j.id;
    end if;
end
$body$;
create or replace function store_group_limits_v3(p_group_limits text, p_fresh text[])
returns void language plpgsql as $body$
begin
    insert into group_limits (queue, grp, lim)
    select distinct on (g.queue, g.grp) g.queue, g.grp, g.lim
    from json_to_recordset(p_group_limits::json) as g(o integer, id text, queue text, grp text, lim integer)
    where exists (select from unnest(p_fresh) as f where f = g.id)
    order by g.queue, g.grp, g.o
    on conflict do nothing;
end
$body$;
create or replace function take_v3(p_queue text, p_now bigint, p_limit integer, p_start bigint[])
returns text[] language plpgsql as $body$
declare
    grouped text[];
    ungrouped text[];
    groups_first boolean;
begin
    if not exists (select from groups g where g.queue = p_queue and g.waiting > 0 and g.inflight < g.lim) then
        return case when p_start is null then take_ungrouped_v3(p_queue, p_now, p_limit)
                    else take_after_v3(p_queue, p_now, p_limit, p_start) end;
    end if;
    select q.groups_next into groups_first from queues q where q.queue = p_queue for update skip locked;
    if not found then  -- another reserve has it locked
        groups_first := random() < 0.5;
    end if;
    grouped := take_grouped_v3(p_queue, p_now, (p_limit + case when groups_first then 1 else 0 end) / 2, '{}');
    ungrouped := case when p_start is null then take_ungrouped_v3(p_queue, p_now, p_limit - cardinality(grouped))
                      else take_after_v3(p_queue, p_now, p_limit - cardinality(grouped), p_start) end;
    if cardinality(grouped) + cardinality(ungrouped) < p_limit then
        grouped := take_grouped_v3(p_queue, p_now, p_limit - cardinality(grouped) - cardinality(ungrouped), grouped);
    end if;
    if cardinality(grouped) + cardinality(ungrouped) > 0 then
        update queues q set groups_next = case when cardinality(grouped) = cardinality(ungrouped) then groups_first
                                               else cardinality(grouped) < cardinality(ungrouped) end
        where q.queue = any(array(select x.queue from queues x where x.queue = p_queue for update skip locked));
    end if;
    return grouped || ungrouped;
end
$body$;
create or replace function take_after_v3(p_queue text, p_now bigint, p_limit integer, p_start bigint[])
returns text[] language plpgsql as $body$
declare
    taken text[] := array(
        select j.id from jobs j
        where j.queue = p_queue and j.state in (2, 4) and j.grp is null and j.wake <= p_now
          and j.priority = p_start[1] and (j.due, j.seq) > (p_start[2], p_start[3]) and damage_of_v3(j) is null
        order by j.due, j.seq limit p_limit for no key update skip locked);
begin
    if cardinality(taken) < p_limit then
        taken := taken || array(
            select j.id from jobs j
            where j.queue = p_queue and j.state in (2, 4) and j.grp is null and j.wake <= p_now
              and j.priority < p_start[1] and damage_of_v3(j) is null
            order by j.priority desc, j.due, j.seq limit p_limit - cardinality(taken)
            for no key update skip locked);
    end if;
    return taken;
end
$body$;
create or replace function take_grouped_v3(p_queue text, p_now bigint, p_more integer, p_have text[])
returns text[] language plpgsql as $body$
declare
    taken text[] := p_have;
    wanted constant integer := cardinality(p_have) + p_more;
    tried text[] := '{}';
    names text[];
    capacities integer[];
    share integer;
    candidate record;
    sound text[];
begin
    while cardinality(taken) < wanted loop
        select array_agg(x.grp), array_agg(x.capacity) into names, capacities
        from (select g.grp, g.lim - g.inflight as capacity from groups g
              where g.queue = p_queue and g.waiting > 0 and g.inflight < g.lim and g.grp <> all(tried)
              order by g.served limit wanted - cardinality(taken) for no key update skip locked) as x;
        exit when names is null;
        share := greatest(1, (wanted - cardinality(taken)) / cardinality(names));
        for candidate in
            select n.grp,
                   array(select j.id from jobs j
                         where j.queue = p_queue and j.grp = n.grp and j.state in (2, 4)
                           and j.wake <= p_now and (taken = '{}' or j.id <> all(taken))
                         order by j.due, j.seq
                         -- A lease that had ended for a faster clock counts again for this one.
                         limit greatest(least(share, n.capacity - (
                             select count(*) from jobs h where h.queue = p_queue and h.grp = n.grp
                             and h.state in (2, 4) and h.due > p_now and h.wake > p_now
                             and h.token is not null)), 0)
                         for no key update skip locked) as ids
            from unnest(names, capacities) as n(grp, capacity)
        loop
            if candidate.ids = '{}' then
                tried := tried || candidate.grp;
                perform recount_waiting_v3(p_queue, candidate.grp, taken);
            else
                sound := admit_v3(p_queue, candidate.grp, candidate.ids, p_now);
                taken := taken || sound;
                if sound = '{}' and exists (select from jobs j where j.id = candidate.ids[1]) then
                    tried := tried || candidate.grp;  -- it is damaged, and another transaction has it locked
                end if;
            end if;
        end loop;
    end loop;
    return taken;
end
$body$;
create or replace function take_measured_v3(p_queue text, p_now bigint, p_limit integer, p_scan jsonb,
                                         out ids text[], out scan jsonb)
language plpgsql as $body$
declare
    read_before constant bigint := index_tuples_read_v3();
begin
    ids := take_v3(p_queue, p_now, p_limit, start_of_v3(p_scan, p_queue));
    scan := p_scan;
    if index_tuples_read_v3() - read_before > 1000 + 10 * p_limit then
        scan := scan || jsonb_build_object('=' || p_queue, coalesce(
            (select jsonb_build_array(j.priority, j.due, j.seq) from jobs j
             where j.id = ids[cardinality(ids)] and j.grp is null),
            jsonb_build_array(0, greatest(p_now - 60000000, 0), 0)));
    end if;
end
$body$;
create or replace function take_ungrouped_v3(p_queue text, p_now bigint, p_limit integer)
returns text[] language plpgsql as $body$
declare
    taken text[] := '{}';
    sound text[];
    damaged text[];
    seen text[] := '{}';
begin
    while cardinality(taken) < p_limit loop
        select array_agg(c.id) filter (where c.sound), array_agg(c.id) filter (where c.sound is not true)
        into sound, damaged
        from (select j.id, is_sound_v3(j) as sound
              from jobs j
              where j.queue = p_queue and j.state in (2, 4) and j.grp is null and j.wake <= p_now
                and (seen = '{}' or j.id <> all(seen))
              order by j.priority desc, j.due, j.seq
              limit p_limit - cardinality(taken)
              for no key update skip locked) as c;
        taken := taken || coalesce(sound, '{}');
        exit when damaged is null;
        seen := seen || coalesce(sound, '{}') || damaged;
        perform set_aside_v3(damaged, p_now);
    end loop;
    return taken;
end
$body$;
create or replace function upcoming_v3(p_queues text, p_now bigint)
returns bigint language plpgsql stable
set search_path = taskharbor, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_generic_plan as $body$
declare
    one text;
    earliest bigint;
begin
    for one in select json_array_elements_text(p_queues::json) loop
        earliest := least(
            earliest,
            (select j.wake from jobs j where j.queue = one and j.state = 1 and j.wake > p_now
             order by j.wake limit 1),
            (select j.wake from jobs j where j.queue = one and j.state = 3 and j.wake > p_now
             order by j.wake limit 1),
            early_in_line_v3(one, p_now));
    end loop;
    return earliest;
end
$body$;
create or replace function wait_for_turn_v3(p_queues text[], p_now bigint, p_due_after bigint)
returns boolean language plpgsql as $body$
declare
    one text;
    locks integer[] := '{}';
    is_due boolean := false;
begin
    foreach one in array p_queues loop
        if exists (select from jobs j where j.queue = one and j.state = 1 and j.wake <= p_now
                   and j.wake > p_due_after)
           or exists (select from jobs j where j.queue = one and j.state = 3 and j.wake <= p_now
                      and j.wake > p_due_after)
           or (p_due_after >= 0
               and exists (select from jobs j where j.queue = one and j.state = 1 and j.wake <= 0)) then
            locks := locks || hashtext(current_schema() || '.' || one);
            is_due := true;
        elsif exists (select from groups g where g.queue = one and g.waiting > 0 and g.inflight < g.lim) then
            locks := locks || hashtext(current_schema() || '.' || one);
        end if;
    end loop;
    if locks <> '{}' then
        perform pg_advisory_xact_lock(1952540009, x.lock)
        from (select distinct l as lock from unnest(locks) as l order by 1) as x;
    end if;
    return is_due or exists (select from group_limits l where l.queue = any(p_queues) and not l.applied)
           or exists (select from jobs j where j.state < 0 or j.state > 4);
end
$body$;
