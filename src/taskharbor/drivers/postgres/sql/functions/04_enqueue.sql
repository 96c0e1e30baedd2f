-- Store jobs, all or none. One statement for a call of any size, on any kind of connection.
-- in:  p_jobs   JSON array of records, payload in base64, each id once; `o` is its place in the call
--      p_keys   null, or for the jobs with an idempotency key: o, id, queue, key (base64)
--      p_edges  null, or for the jobs with dependencies: id, pos, dep
--      p_limits null, or for the jobs with a group_limit: o, id, queue, grp, lim
--      p_flows  null, or the flows that are named
--      p_queues the queues that are named; p_now; p_gently: see hint
-- out: only what is out of the ordinary: (id, known) for a job that existed; (null, message) for an invalid call
-- locks: the flows, shared (see lock_flow); new keys and rows, each in their order; dependencies that were stored before
--      (weakly, see last_of), in the order of ids. No group and no queue is locked
-- Ten thousand jobs may come in one call: arrays are joined (hashed), never looked through for each row. `state + 0`,
-- here and elsewhere, keeps a planner from looking up an id in a partial index that was small when it looked.
create or replace function store(p_jobs text, p_keys text, p_edges text, p_limits text, p_flows text,
                                 p_queues text[], p_now bigint, p_gently boolean)
returns table (id text, known text) language plpgsql as $body$
#variable_conflict use_column
declare
    base bigint := nextval('arrival') << 20;
    alias_ids text[] := '{}';
    alias_known text[] := '{}';
    fresh text[];
    late text[];
    cancelled text[];
    asked integer;
    missing record;
begin
    if p_flows is not null then
        perform share_flows(array(select json_array_elements_text(p_flows::json)));
    end if;

    if p_keys is not null then
        for turn in 1..20 loop
            insert into keys as k (queue, key, id)
            select distinct on (g.queue, g.key) g.queue, decode(g.key, 'base64'), g.id
            from json_to_recordset(p_keys::json) as g(o integer, id text, queue text, key text)
            where not exists (select from jobs j where j.id = g.id)
              and not exists (select from history h where h.id = g.id)
            order by g.queue, g.key, g.o
            on conflict do nothing;
            select coalesce(array_agg(g.id order by g.o), '{}'), coalesce(array_agg(k.id order by g.o), '{}')
            into alias_ids, alias_known
            from json_to_recordset(p_keys::json) as g(o integer, id text, queue text, key text)
            join keys k on k.queue = g.queue collate "C" and k.key = decode(g.key, 'base64') and k.id <> g.id
            where not exists (select from jobs j where j.id = g.id)
              and not exists (select from history h where h.id = g.id);
            -- A key that was there when we inserted and is gone now: its record was deleted. Once more.
            exit when not exists (
                select from json_to_recordset(p_keys::json) as g(o integer, id text, queue text, key text)
                where not exists (select from jobs j where j.id = g.id)
                  and not exists (select from history h where h.id = g.id)
                  and not exists (select from keys k
                                  where k.queue = g.queue collate "C" and k.key = decode(g.key, 'base64')));
        end loop;
    end if;

    with put as (
        insert into jobs (id, queue, type, payload, run_at, timeout, priority, attempts, max_attempts, deliveries,
                          lost, key, grp, group_limit, depends_on, flow_id, metadata, created_at,
                          state, wake, due, seq, stored)
        select g.id, g.queue, g.type, decode(g.payload, 'base64'), g.run_at, g.timeout, coalesce(g.priority, 0),
               coalesce(g.attempts, 0), coalesce(g.max_attempts, 0), 0, 0, decode(g.key, 'base64'), g.grp,
               coalesce(g.group_limit, 0), g.depends_on, g.flow_id, g.metadata, coalesce(g.created_at, p_now),
               case when g.depends_on is not null then 0
                    when g.grp is null and coalesce(g.run_at, 0) <= p_now then 2 else 1 end,
               coalesce(g.run_at, 0), greatest(coalesce(g.run_at, 0), p_now), base + g.o, base + g.o
        from json_to_recordset(p_jobs::json) as g(
            o integer, id text, queue text, type text, payload text, run_at bigint, timeout bigint, priority integer,
            attempts integer, max_attempts integer, key text, grp text, group_limit integer, depends_on text[],
            flow_id text, metadata text, created_at bigint)
        where not exists (select from unnest(alias_ids) as a where a = g.id)
        order by g.id collate "C"
        on conflict (id) do nothing
        returning jobs.id
    )
    select coalesce(array_agg(put.id), '{}') into fresh from put;
    -- A new look: what was in the hot table a moment ago may have finished since.
    late := array(select h.id from history h where h.id = any(fresh));
    if late <> '{}' then
        delete from jobs j where j.id = any(late);
        fresh := array(select f from unnest(fresh) as f where f <> all(late));
    end if;
    if p_gently and current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_unseen(fresh);
        perform refuse_outdated(p_keys, p_flows);
    end if;
    asked := json_array_length(p_jobs::json);
    if cardinality(fresh) + cardinality(alias_ids) < asked then
        if p_keys is not null then
            -- The id decides: a key that came with an id known since brings nothing.
            delete from keys k
            using json_to_recordset(p_keys::json) as g(o integer, id text, queue text, key text)
            where k.queue = g.queue collate "C" and k.key = decode(g.key, 'base64') and k.id = g.id
              and not exists (select from unnest(fresh) as f where f = g.id)
              and not exists (select from records r where r.id = g.id and r.queue = k.queue and r.key = k.key);
        end if;
        return query
            select g.id, g.id from json_to_recordset(p_jobs::json) as g(id text)
            where not exists (select from unnest(fresh) as f where f = g.id)
              and not exists (select from unnest(alias_ids) as a where a = g.id);
    end if;
    if alias_ids <> '{}' then
        return query select a, k from unnest(alias_ids, alias_known) as x(a, k);
    end if;

    if p_limits is not null then
        insert into limits (queue, grp, lim)
        select distinct on (g.queue, g.grp) g.queue, g.grp, g.lim
        from json_to_recordset(p_limits::json) as g(o integer, id text, queue text, grp text, lim integer)
        where exists (select from unnest(fresh) as f where f = g.id)
        order by g.queue, g.grp, g.o
        on conflict do nothing;
    end if;
    if p_edges is not null then
        perform link(p_edges, fresh, alias_ids, alias_known, p_now);
    end if;
    if p_flows is not null then
        cancelled := array(select f.flow_id from flows f
                           where f.flow_id = any(array(select json_array_elements_text(p_flows::json))));
        if cancelled <> '{}' then
            with gone as (
                delete from jobs j using unnest(fresh) as x(id)
                where j.id = x.id collate "C" and coalesce(j.flow_id, '') = any(cancelled) returning j.*
            )
            insert into history select (x).* from (
                select set_finished(gone, 7::smallint, 'flow cancelled', p_now) as x from gone) as y;
        end if;
    end if;
    perform hint(p_queues, p_gently);
end
$body$;

-- The caller's transaction may not see what has finished since it began to read: the index of ids knows. Then it ends
-- with a serialization failure, as it would for a row of its own, instead of storing a job again that is done.
create or replace function refuse_unseen(p_ids text[])
returns void language plpgsql as $body$
begin
    insert into history (id, queue, state) select i, '', 0 from unnest(p_ids) as i on conflict do nothing;
    delete from history h where h.id = any(p_ids) and h.state + 0 = 0;
end
$body$;

-- The same for keys whose records are gone since, and for flows that were cancelled since.
create or replace function refuse_outdated(p_keys text, p_flows text)
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

-- A record as it is when it is finished from outside.
create or replace function set_finished(j jobs, p_state smallint, p_reason text, p_now bigint)
returns jobs language plpgsql immutable as $body$
begin
    j.state := p_state;
    j.reason := p_reason;
    j.finished_at := p_now;
    j.token := null;
    j.worker := null;
    return j;
end
$body$;

-- Tie new jobs to what they depend on; those with nothing open join the line. An unknown dependency raises TH001.
create or replace function link(p_edges text, p_fresh text[], p_alias text[], p_known text[], p_now bigint)
returns void language plpgsql as $body$
#variable_conflict use_column
declare
    missing record;
    edge_ids text[];
    edge_pos integer[];
    edge_deps text[];
    old_deps text[];
    new_deps text[];
    done text[] := '{}';
begin
    select array_agg(e.id), array_agg(e.pos), array_agg(coalesce(a.known, e.dep))
    into edge_ids, edge_pos, edge_deps
    from json_to_recordset(p_edges::json) as e(id text, pos integer, dep text)
    left join unnest(p_alias, p_known) as a(id, known) on a.id = e.dep
    join unnest(p_fresh) as f(id) on f.id = e.id;
    if edge_ids is null then
        return;
    end if;
    -- What was stored before: whoever stands in its place, locked so that it cannot finish unseen.
    select array_agg(x.dep), array_agg(last_of(x.dep)) into old_deps, new_deps
    from (select distinct d as dep from unnest(edge_deps) as d
          where not exists (select from unnest(p_fresh) as f(id) where f.id = d) order by 1) as x;
    select e.id, e.dep into missing
    from unnest(edge_ids, edge_deps) as e(id, dep)
    join unnest(old_deps, new_deps) as n(old, new) on n.old = e.dep
    where n.new is null limit 1;
    if found then
        raise exception using errcode = 'TH001', message = format(
            'depends_on: %s depends on %s, which is not stored; enqueue it before or in the same call',
            missing.id, missing.dep);
    end if;
    if old_deps is not null then
        select array_agg(coalesce(n.new, e.dep) order by e.i) into edge_deps
        from unnest(edge_deps) with ordinality as e(dep, i)
        left join unnest(old_deps, new_deps) as n(old, new) on n.old = e.dep;
    end if;
    insert into edges (dependency, dependent)
    select distinct e.dep, e.id from unnest(edge_ids, edge_deps) as e(id, dep) on conflict do nothing;
    -- Only what was stored before can be done already. And one look-up for each of these, one update for each job, never
    -- a join: a planner whose statistics were made when the tables were empty reads the whole table for every edge.
    for missing in select distinct n as dep from unnest(new_deps) as n loop
        if exists (select from history h where h.id = missing.dep and h.state + 0 = 5) then
            done := done || missing.dep;
        end if;
    end loop;
    for missing in
        select e.id, array_agg(e.dep order by e.pos) as deps, count(distinct e.dep) filter (where d.dep is null) as open
        from unnest(edge_ids, edge_pos, edge_deps) as e(id, pos, dep)
        left join unnest(done) as d(dep) on d.dep = e.dep
        group by e.id
    loop
        update jobs j
        set depends_on = missing.deps, open = missing.open,
            state = case when missing.open > 0 then 0
                         when j.grp is null and coalesce(j.run_at, 0) <= p_now then 2 else 1 end
        where j.id = missing.id;
    end loop;
end
$body$;

create or replace function enqueue(p_jobs text, p_keys text, p_edges text, p_limits text, p_flows text,
                                   p_queues text, p_now bigint, p_gently boolean)
returns table (id text, known text) language plpgsql
set search_path = @schema@, pg_temp set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $body$
declare
    queue_names text[] := array(select json_array_elements_text(p_queues::json));
begin
    if not p_gently and current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation();
    end if;
    if p_edges is null then
        return query select * from store(p_jobs, p_keys, p_edges, p_limits, p_flows, queue_names, p_now, p_gently);
    else
        begin
            return query
                select * from store(p_jobs, p_keys, p_edges, p_limits, p_flows, queue_names, p_now, p_gently);
        exception when sqlstate 'TH001' then
            return query select null::text, sqlerrm;
        end;
    end if;
end
$body$;

-- The same for the common case: one job, without a key, dependencies, a flow or a limit for its group.
-- out: whether it existed
create or replace function enqueue_one(p_id text, p_queue text, p_type text, p_payload text, p_run_at bigint,
                                       p_timeout bigint, p_priority integer, p_attempts integer,
                                       p_max_attempts integer, p_grp text, p_metadata text, p_created_at bigint,
                                       p_now bigint, p_gently boolean)
returns boolean language plpgsql
set search_path = @schema@, pg_temp set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $body$
declare
    base bigint := nextval('arrival') << 20;
    number integer;
    late text[];
    awaited boolean;
begin
    if not p_gently and current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation();
    end if;
    insert into jobs (id, queue, type, payload, run_at, timeout, priority, attempts, max_attempts, deliveries, lost,
                      grp, group_limit, metadata, created_at, state, wake, due, seq, stored)
    values (p_id, p_queue, p_type, decode(p_payload, 'base64'), p_run_at, p_timeout, p_priority, p_attempts,
            p_max_attempts, 0, 0, p_grp, 0, p_metadata, coalesce(p_created_at, p_now),
            case when p_grp is null and coalesce(p_run_at, 0) <= p_now then 2 else 1 end,
            coalesce(p_run_at, 0), greatest(coalesce(p_run_at, 0), p_now), base, base)
    on conflict (id) do nothing;
    get diagnostics number = row_count;
    -- A new look: what was in the hot table a moment ago may have finished since.
    select array(select h.id from history h where h.id = p_id), exists (select from waiting w where w.queue = p_queue)
    into late, awaited;
    if late <> '{}' then
        delete from jobs j where j.id = p_id;
        return true;
    end if;
    if p_gently and number > 0 and current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_unseen(array[p_id]);
    end if;
    if number > 0 and awaited then
        perform ring(array[p_queue], p_gently);
    end if;
    return number = 0;
end
$body$;
