begin;
create schema if not exists "taskharbor";
set local search_path = "taskharbor", pg_temp;
set local check_function_bodies = off;
-- The tables. Times are whole microseconds since 1970 (bigint): exact on every kind of connection.
-- Text that other people wrote is never pasted into a statement; names are ordered by code point (collate "C").
--
-- jobs.state   0 blocked    waits for `open` dependencies
--              1 waiting    not in the line yet: its run_at lies ahead, or it is grouped and no reserve has seen it
--              2 in line
--              3 leased     `wake` is the end of the lease
--              4 leased, the lease was over when a reserve looked: in line, and still with its token
-- history      5 done   6 dead (dlq)   7 cancelled
-- wake         from this moment on a reserve may take the job
-- open         how many dependencies are not done, while it is blocked; else scratch
-- due, seq     its place: the time at which it joined the line, then its arrival
--
-- What is compared most stands first, where it is found without looking through the rest of a row.
-- No column but the id is checked: a record that another program damaged is set aside by the next reserve, and that
-- is easier to live with than a program that cannot be rolled back.

-- A row for each migration: the number of the schema, and the oldest one whose programs may still use it.
create table meta (version integer not null, oldest integer not null, made_at timestamptz not null default now());
create sequence arrival;

create table jobs (
    wake bigint not null default 0,
    due bigint not null default 0,
    seq bigint not null default 0,
    stored bigint not null default 0,
    priority integer not null default 0,
    state smallint not null,
    id text collate "C" primary key,
    queue text collate "C" not null,
    attempts integer,
    max_attempts integer,
    deliveries integer,
    lost integer,
    group_limit integer,
    created_at bigint,
    type text collate "C",
    payload bytea,
    token text collate "C",
    worker text collate "C",
    run_at bigint,
    timeout bigint,
    key bytea,
    grp text collate "C",
    depends_on text[] collate "C",
    flow_id text collate "C",
    handed_to text collate "C",
    metadata text,
    last_error text,
    failed_at bigint,
    reason text,
    finished_at bigint,
    result bytea,
    open integer,
    settled text collate "C",
    settled_as smallint
) with (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05
);
-- What reserve takes from: only jobs that may run now. Nothing scheduled, blocked, running or finished is in its way.
create index jobs_line on jobs (queue, priority desc, due, seq) where state in (2, 4) and grp is null;
create index jobs_group_line on jobs (queue, grp, due, seq) where state in (2, 4) and grp is not null;
-- What comes into the line by itself: by its run_at, and by the end of its lease.
create index jobs_calendar on jobs (queue, wake) where state = 1;
create index jobs_leases on jobs (queue, wake) where state = 3;
-- What a faster clock has seen expire, for `release`.
create index jobs_over on jobs (worker) where state = 4;
create index jobs_flow on jobs (flow_id, id) where flow_id is not null;
create index jobs_strange on jobs (id) where state < 0 or state > 4;

create table history (like jobs including defaults);
alter table history add primary key (id);
alter table history set (autovacuum_vacuum_insert_scale_factor = 0.2);
-- What prune takes from, flow by flow, and the flows that a dead job holds. The expressions are the ones it asks for: no
-- other index can be taken for these, whatever a planner believes about the table.
create index history_sweep on history (coalesce(flow_id, ''), finished_at, id) where state in (5, 7);
create index history_held on history (coalesce(flow_id, '')) where state + 0 = 6;
create index history_flow on history (flow_id, id) where flow_id is not null;
create index history_dead on history (queue, id) where state = 6;

-- An idempotency key lives as long as its record, in either table.
create table keys (
    queue text collate "C" not null,
    key bytea not null,
    id text collate "C" not null,
    primary key (queue, key)
);

-- `dependent` names `dependency` in its depends_on, and both are stored.
create table edges (
    dependency text collate "C" not null,
    dependent text collate "C" not null,
    primary key (dependency, dependent)
);
create index edges_dependent on edges (dependent);

-- Only what workers do touches a group's row; enqueue touches none, so an open transaction holds no group up.
create table groups (
    queue text collate "C" not null,
    grp text collate "C" not null,
    lim integer not null default 1,
    inflight integer not null default 0,
    waiting integer not null default 0,
    served bigint not null default 0,
    primary key (queue, grp)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
create index groups_turns on groups (queue, served) where waiting > 0 and inflight < lim;
create index groups_idle on groups (queue, grp) where waiting = 0 and inflight = 0;

create table limits (
    queue text collate "C" not null,
    grp text collate "C" not null,
    lim integer not null,
    applied boolean not null default false,
    primary key (queue, grp)
);
create index limits_news on limits (queue) where not applied;

create table queues (
    queue text collate "C" primary key,
    paused boolean not null default false,
    served bigint not null default 0,
    groups_next boolean not null default true
) with (fillfactor = 50);

-- Cancelled flows, as long as a record of them is there.
create table flows (flow_id text collate "C" primary key);

-- One row: behind which record the next prune begins.
create table sweep (
    one boolean primary key default true check (one),
    flow text collate "C" not null,
    finished_at bigint not null,
    id text collate "C" not null
);

create table workers (
    worker text collate "C" primary key,
    seen_at bigint not null,
    info text not null
);

-- Who waits for a hint. Unlogged: after a crash nobody waits any more. Who still waits says so every minute.
create unlogged table waiting (
    queue text collate "C" not null,
    waiter text collate "C" not null,
    said_at timestamptz not null default now(),
    primary key (queue, waiter)
);

create view records as select * from jobs union all select * from history;
insert into meta (version, oldest) select 1, coalesce(max(oldest), 1) from meta;
-- Calls look again after they have locked: what was stored while they waited must be seen. Only read committed shows
-- it: in a stricter isolation an ack would not see who was made dependent on its job since the snapshot, and that one
-- would wait for ever. So a call refuses (TH002), and the driver begins it again in a transaction that says its isolation.
-- What is stored in the caller's own transaction see refuse_unseen.
create or replace function refuse_isolation_v1()
returns void language plpgsql as $body$
begin
    raise exception using errcode = 'TH002', message = format(
        'expected a transaction in the isolation read committed, got %s', current_setting('transaction_isolation'));
end
$body$;
-- Move the counters of groups, and take over the limits that were set for them.
-- in: for each change a queue, a group, and what is added to its inflight and its waiting members
-- locks: the rows of these groups, in the order of their names, so that two calls never wait for each other
create or replace function regroup_v1(p_queues text[], p_groups text[], p_inflight integer[], p_waiting integer[])
returns void language plpgsql as $body$
begin
    insert into groups as g (queue, grp, lim, inflight, waiting, served)
    select x.queue, x.grp,
           coalesce((select l.lim from limits l where l.queue = x.queue collate "C" and l.grp = x.grp collate "C"), 1),
           sum(x.inflight), sum(x.waiting), nextval('arrival')
    from unnest(p_queues, p_groups, p_inflight, p_waiting) as x(queue, grp, inflight, waiting)
    group by x.queue, x.grp
    order by x.queue collate "C", x.grp collate "C"
    on conflict (queue, grp) do update
    set inflight = least(greatest(g.inflight::bigint + excluded.inflight, 0), 2147483647),
        waiting = least(greatest(g.waiting::bigint + excluded.waiting, 0), 2147483647),
        lim = excluded.lim;
end
$body$;
-- Tell whoever waits for one of these queues that work may have arrived; nobody waits: one look, and nothing is sent.
-- in: the queues; p_gently: leave the note of who waits in place, because this transaction may stay open for long
-- out: notifications, sent at commit. Taking the note away coalesces: the next enqueue finds nobody to tell
-- locks: notes that nobody else is taking away at this moment
create or replace function hint_v1(p_queues text[], p_gently boolean)
returns void language plpgsql as $body$
begin
    if exists (select from waiting w where w.queue = any(p_queues)) then
        perform ring_v1(p_queues, p_gently);
    end if;
end
$body$;

-- The same, after that look.
create or replace function ring_v1(p_queues text[], p_gently boolean)
returns void language plpgsql as $body$
declare
    told bigint;
begin
    if p_gently and current_setting('taskharbor.hints', true) = 'off' then
        return;  -- a transaction that is to be prepared may not notify
    end if;
    if p_gently then
        select count(pg_notify('taskharbor:' || md5(current_schema()), x.queue)) into told
        from (select distinct w.queue from waiting w where w.queue = any(p_queues)) as x;
    else
        with gone as (
            delete from waiting w
            where w.ctid = any(array(select x.ctid from waiting x where x.queue = any(p_queues) for update skip locked))
            returning w.queue
        )
        select count(pg_notify('taskharbor:' || md5(current_schema()), x.queue)) into told
        from (select distinct g.queue from gone g) as x;
    end if;
end
$body$;

-- Note that somebody waits, and look whether there is something already.
-- in: the queues, and who waits; out: whether a reserve may find something
create or replace function watch_v1(p_queues text[], p_waiter text)
returns boolean language plpgsql
set search_path = "taskharbor", pg_temp set jit = off set enable_seqscan = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan as $body$
begin
    perform set_config('synchronous_commit', 'off', true);
    insert into waiting (queue, waiter) select q, p_waiter from unnest(p_queues) as q order by 1 on conflict do nothing;
    -- Seldom: while a note is locked nobody takes it away, and so nobody tells us.
    update waiting w set said_at = now()
    where w.queue = any(p_queues) and w.waiter = p_waiter and w.said_at < now() - interval '1 minute';
    return peek_v1(p_queues);
end
$body$;

-- Whether a reserve of one of these queues may find something now, as far as that can be told without a clock.
-- Queue by queue: over all of them at once a planner may choose to hash the whole line.
create or replace function peek_v1(p_queues text[])
returns boolean language plpgsql stable as $body$
declare
    q text;
begin
    foreach q in array p_queues loop
        continue when exists (select from queues x where x.queue = q and x.paused);
        if exists (select from jobs j where j.queue = q and j.state in (2, 4) and j.grp is null)
           or exists (select from jobs j where j.queue = q and j.state = 1 and j.wake <= 0)
           or exists (select from groups g where g.queue = q and g.waiting > 0 and g.inflight < g.lim) then
            return true;
        end if;
    end loop;
    return false;
end
$body$;

-- The same from outside of the other functions: a queue was resumed.
create or replace function tell_v1(p_queue text)
returns void language sql set search_path = "taskharbor", pg_temp set jit = off as $body$
    select hint_v1(array[p_queue], false);
$body$;
-- A lock for each flow: whoever cancels one, or forgets it, knows all that was stored into it; what comes later sees that.
-- Keys contain the schema: two stores in one database have nothing to do with each other.
-- Who stores shares the locks of all flows of the call. Locks stand in a table of the server's that has room for some
-- thousands: a call with very many flows shares one lock that stands for all.
create or replace function share_flows_v1(p_flows text[])
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

-- Wait until the flow is ours alone. False: an open call with very many flows may hold it as well; that one is not waited
-- for, because others like it would have to stand behind us, whatever their flows.
create or replace function lock_flow_v1(p_flow text)
returns boolean language plpgsql as $body$
begin
    perform pg_advisory_xact_lock(1952540008, hashtext(current_schema() || '.' || p_flow));
    return pg_try_advisory_xact_lock(1952540010, hashtext(current_schema()));
end
$body$;
-- The job that stands in the place of another, over however many handovers, as far as its successors are still there.
-- in: an id; out: the id of the last one, null if there is no such job
-- locks: each record on the way in the weakest mode: it can be reserved and extended, not settled, until this commits
create or replace function last_of_v1(p_id text)
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
            perform from jobs j where j.id = next_id for key share;  -- requeued between the two looks
            return case when found then next_id else here end;
        end if;
        here := next_id;
        next_id := further;
    end loop;
    return here;
end
$body$;

-- The same without waiting, and nothing but the locks: the id of a record on the way that somebody else is ending at this
-- moment, null if there is none.
create or replace function locked_before_v1(p_id text)
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
            -- Locked, or it has moved from one table to the other between the two looks.
            return case when exists (select from records r where r.id = next_id) then next_id end;
        end if;
        next_id := further;
    end loop;
    return null;
end
$body$;

-- Before a job is settled that spawns others: lock what storing these will need, in the order in which everybody does. Two
-- outcomes that took these after their groups, or waited for each other's jobs, would wait in a circle.
-- in:  the job, which is locked; null, or the flows of the jobs it spawns; null, or what these depend on and was stored
--      before; whether one of them takes its place
-- out: the id of a dependency that somebody else is ending: nothing more was done; else the dependents, a JSON array, if
--      one takes its place
-- locks: the flows, shared; dependencies that nobody else has locked; dependents in the order of ids
create or replace function prepare_spawn_v1(p_id text, p_flows text, p_dependencies text, p_handover boolean,
                                         out locked text, out dependents text)
language plpgsql set search_path = "taskharbor", pg_temp set jit = off set enable_seqscan = off as $body$
declare
    one text;
    waiting_ids text[];
begin
    if p_flows is not null then
        perform share_flows_v1(array(select json_array_elements_text(p_flows::json)));
    end if;
    if p_dependencies is not null then
        for one in select d from json_array_elements_text(p_dependencies::json) as d order by 1 loop
            locked := locked_before_v1(one);
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

-- The result of a job, or of whoever took its place.
create or replace function result_of_v1(p_id text)
returns bytea language plpgsql stable set search_path = "taskharbor", pg_temp set jit = off set enable_seqscan = off as $body$
declare
    found_result bytea := null;
    next_id text := p_id;
    here record;
begin
    for turn in 1..10000 loop
        exit when next_id is null;
        select r.result, r.handed_to into here from records r where r.id = next_id;
        exit when not found;
        found_result := here.result;
        next_id := here.handed_to;
    end loop;
    return found_result;
end
$body$;
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
create or replace function store_v1(p_jobs text, p_keys text, p_edges text, p_limits text, p_flows text,
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
        perform share_flows_v1(array(select json_array_elements_text(p_flows::json)));
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
        perform refuse_unseen_v1(fresh);
        perform refuse_outdated_v1(p_keys, p_flows);
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
        perform link_v1(p_edges, fresh, alias_ids, alias_known, p_now);
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
                select set_finished_v1(gone, 7::smallint, 'flow cancelled', p_now) as x from gone) as y;
        end if;
    end if;
    perform hint_v1(p_queues, p_gently);
end
$body$;

-- The caller's transaction may not see what has finished since it began to read: the index of ids knows. Then it ends
-- with a serialization failure, as it would for a row of its own, instead of storing a job again that is done.
create or replace function refuse_unseen_v1(p_ids text[])
returns void language plpgsql as $body$
begin
    insert into history (id, queue, state) select i, '', 0 from unnest(p_ids) as i on conflict do nothing;
    delete from history h where h.id = any(p_ids) and h.state + 0 = 0;
end
$body$;

-- The same for keys whose records are gone since, and for flows that were cancelled since.
create or replace function refuse_outdated_v1(p_keys text, p_flows text)
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
create or replace function set_finished_v1(j jobs, p_state smallint, p_reason text, p_now bigint)
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
create or replace function link_v1(p_edges text, p_fresh text[], p_alias text[], p_known text[], p_now bigint)
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
    select array_agg(x.dep), array_agg(last_of_v1(x.dep)) into old_deps, new_deps
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

create or replace function enqueue_v1(p_jobs text, p_keys text, p_edges text, p_limits text, p_flows text,
                                   p_queues text, p_now bigint, p_gently boolean)
returns table (id text, known text) language plpgsql
set search_path = "taskharbor", pg_temp set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $body$
declare
    queue_names text[] := array(select json_array_elements_text(p_queues::json));
begin
    if not p_gently and current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v1();
    end if;
    if p_edges is null then
        return query select * from store_v1(p_jobs, p_keys, p_edges, p_limits, p_flows, queue_names, p_now, p_gently);
    else
        begin
            return query
                select * from store_v1(p_jobs, p_keys, p_edges, p_limits, p_flows, queue_names, p_now, p_gently);
        exception when sqlstate 'TH001' then
            return query select null::text, sqlerrm;
        end;
    end if;
end
$body$;

-- The same for the common case: one job, without a key, dependencies, a flow or a limit for its group.
-- out: whether it existed
create or replace function enqueue_one_v1(p_id text, p_queue text, p_type text, p_payload text, p_run_at bigint,
                                       p_timeout bigint, p_priority integer, p_attempts integer,
                                       p_max_attempts integer, p_grp text, p_metadata text, p_created_at bigint,
                                       p_now bigint, p_gently boolean)
returns boolean language plpgsql
set search_path = "taskharbor", pg_temp set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $body$
declare
    base bigint := nextval('arrival') << 20;
    number integer;
    late text[];
    awaited boolean;
begin
    if not p_gently and current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v1();
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
        perform refuse_unseen_v1(array[p_id]);
    end if;
    if number > 0 and awaited then
        perform ring_v1(array[p_queue], p_gently);
    end if;
    return number = 0;
end
$body$;
-- What a reserve looks for before it hands a record out, in every row: what would stop a statement of ours, and numbers
-- that nobody can have stored. What few records have (a key, dependencies, metadata, …) the driver looks at, and sets the
-- record aside by set_broken.
create or replace function is_sound_v1(j jobs)
returns boolean language sql immutable as $body$
    select j.type <> '' and j.payload is not null and j.attempts >= 0 and j.max_attempts >= 0
           and j.deliveries >= 0 and j.deliveries < 2147483647 and j.lost >= 0 and j.lost < 2147483647
           and j.created_at >= 0 and j.created_at <= 253402300799999999
           and (j.run_at is null or j.run_at >= 0 and j.run_at <= 253402300799999999)
           and (j.timeout is null or j.timeout >= 1000 and j.timeout <= 2147483647000);
$body$;

-- What another program did to a record that would stop a worker, or null.
create or replace function damage_of_v1(j jobs)
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

-- Set damaged records aside: to the dead letter queue, with the reason. The caller settles their groups' counters. One
-- that somebody else keeps as it is (an open transaction that depends on it) is left for another time. Answers how many.
create or replace function set_aside_v1(p_ids text[], p_now bigint)
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
        select set_finished_v1(gone, 6::smallint, 'damaged record: ' || damage_of_v1(gone), p_now) as x from gone) as y;
    get diagnostics number = row_count;
    return number;
end
$body$;

-- Set records aside that were handed out and turned out to be damaged.
-- in: JSON array of id, token, reason; p_now; out: nothing: whoever has taken one since has to decide over it
create or replace function set_broken_v1(p_given text, p_now bigint)
returns void language plpgsql
set search_path = "taskharbor", pg_temp set enable_seqscan = off set jit = off as $body$
declare
    one record;
    j jobs;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v1();
    end if;
    for one in
        select g.id, g.token, g.reason from json_to_recordset(p_given::json) as g(id text, token text, reason text)
    loop
        perform from jobs x where x.id = one.id and x.token = one.token for update skip locked;
        continue when not found;
        delete from jobs x where x.id = one.id returning x.* into j;
        if j.grp is not null then
            perform regroup_v1(array[j.queue], array[j.grp], array[case when j.state = 3 then -1 else 0 end],
                            array[case when j.state = 4 then -1 else 0 end]);
            perform hint_v1(array[j.queue], false);
        end if;
        j := set_finished_v1(j, 6::smallint, 'damaged record: ' || one.reason, p_now);
        insert into history select (j).*;
    end loop;
end
$body$;
-- Reserve up to p_limit runnable jobs: the claim.
-- in:  p_queues JSON array; p_now; p_expires, the end of the leases; p_worker; p_tokens, one for each job with a comma
--      between them, made by the client; p_again: the same call was sent before and its reply was lost;
--      p_floors: null, or what an earlier call answered: begin there (see slope.py)
--      p_durable: the claim is flushed as an ack is. If it is not, a crash of the server takes back the last claims, and
--      with them the fence: who reserves the job next is given a number that was given out before
-- out: the reserved records, each with its token: in the order of the line they have the tokens in the given order;
--      last, if it had to step over many dead entries, a row without an id: its token says where the next call may begin
-- locks: jobs and groups that nobody else has locked (skip locked). It waits for other reserves of a queue with groups,
--      and for the counters of groups into whose lines it promotes; for nobody else
-- Each queue is asked by itself through one index, so the cost grows with p_limit and with nothing else.

-- Bring into the line what is due: scheduled jobs, grouped ones that nobody has seen yet, leases that are over.
-- Each job comes through here at most once between two reservations; a burst of more than 10,000 takes several calls.
-- All queues of a call in the order of names, and after that all their groups at once: so two calls never wait for each other.
create or replace function promote_v1(p_queues text[], p_now bigint, p_low bigint)
returns void language plpgsql as $body$
declare
    one text;
    number integer;
    strange text[];
    queues_found text[];
    names text[];
    group_queues text[] := '{}';
    group_names text[] := '{}';
    freed integer[] := '{}';
    lined integer[] := '{}';
begin
    foreach one in array p_queues loop
        for turn in 1..10 loop
            with up as (
                update jobs j set state = 2
                where j.id = any(array(select x.id from jobs x where x.queue = one and x.state = 1
                                       and x.wake <= p_now and (x.wake <= 0 or x.wake > p_low)
                                       order by x.wake limit 1000 for no key update skip locked))
                returning j.grp
            )
            select count(*), array_agg(up.grp) filter (where up.grp is not null) into number, names from up;
            if names is not null then
                group_queues := group_queues || array_fill(one, array[cardinality(names)]);
                group_names := group_names || names;
                freed := freed || array_fill(0, array[cardinality(names)]);
                lined := lined || array_fill(1, array[cardinality(names)]);
            end if;
            exit when number < 1000;
        end loop;
        for turn in 1..10 loop
            with up as (
                update jobs j set state = 4
                where j.id = any(array(select x.id from jobs x where x.queue = one and x.state = 3 and x.wake <= p_now
                                       and x.wake > p_low
                                       order by x.wake limit 1000 for no key update skip locked))
                returning j.grp
            )
            select count(*), array_agg(up.grp) filter (where up.grp is not null) into number, names from up;
            if names is not null then
                group_queues := group_queues || array_fill(one, array[cardinality(names)]);
                group_names := group_names || names;
                freed := freed || array_fill(-1, array[cardinality(names)]);
                lined := lined || array_fill(1, array[cardinality(names)]);
            end if;
            exit when number < 1000;
        end loop;
    end loop;
    -- Records of a state that nobody knows stand in no line: whoever reserves sets them aside.
    strange := array(select j.id from jobs j where j.state < 0 or j.state > 4 limit 1000 for update skip locked);
    if strange <> '{}' then
        select array_agg(j.queue), array_agg(j.grp) into queues_found, names
        from jobs j where j.id = any(strange) and j.grp is not null and j.token is not null;
        perform set_aside_v1(strange, p_now);
        if names is not null then
            group_queues := group_queues || queues_found;
            group_names := group_names || names;
            freed := freed || array_fill(-1, array[cardinality(names)]);
            lined := lined || array_fill(0, array[cardinality(names)]);
        end if;
    end if;
    -- A limit that was set since: regroup reads it.
    if exists (select from limits l where l.queue = any(p_queues) and not l.applied) then
        with news as (
            update limits l set applied = true
            where (l.queue, l.grp) in (select x.queue, x.grp from limits x where x.queue = any(p_queues)
                                       and not x.applied order by x.queue, x.grp limit 1000 for update skip locked)
            returning l.queue, l.grp
        )
        select array_agg(n.queue), array_agg(n.grp) into queues_found, names
        from news n join groups g on g.queue = n.queue and g.grp = n.grp;
        if names is not null then
            group_queues := group_queues || queues_found;
            group_names := group_names || names;
            freed := freed || array_fill(0, array[cardinality(names)]);
            lined := lined || array_fill(0, array[cardinality(names)]);
        end if;
    end if;
    if group_names <> '{}' then
        perform regroup_v1(group_queues, group_names, freed, lined);
    end if;
end
$body$;

-- Where groups have something to give, or something is due to be promoted, reserves of a queue come one at a time: else
-- one would find nothing, because the other has promoted it and not yet committed, or half filled its group. A line of
-- ungrouped jobs, the common case, is shared by all. Answers whether there is anything to promote.
create or replace function in_turn_v1(p_queues text[], p_now bigint, p_low bigint)
returns boolean language plpgsql as $body$
declare
    q text;
    locks integer[] := '{}';
    due boolean := false;
begin
    foreach q in array p_queues loop
        if exists (select from jobs j where j.queue = q and j.state = 1 and j.wake <= p_now and j.wake > p_low)
           or exists (select from jobs j where j.queue = q and j.state = 3 and j.wake <= p_now and j.wake > p_low)
           or (p_low >= 0 and exists (select from jobs j where j.queue = q and j.state = 1 and j.wake <= 0)) then
            locks := locks || hashtext(current_schema() || '.' || q);
            due := true;
        elsif exists (select from groups g where g.queue = q and g.waiting > 0 and g.inflight < g.lim) then
            locks := locks || hashtext(current_schema() || '.' || q);
        end if;
    end loop;
    if locks <> '{}' then
        perform pg_advisory_xact_lock(1952540009, x.lock)
        from (select distinct l as lock from unnest(locks) as l order by 1) as x;
    end if;
    return due or exists (select from limits l where l.queue = any(p_queues) and not l.applied)
           or exists (select from jobs j where j.state < 0 or j.state > 4);
end
$body$;

-- Up to p_limit ids from the line of the ungrouped jobs of a queue, locked.
create or replace function take_ungrouped_v1(p_queue text, p_now bigint, p_limit integer)
returns text[] language plpgsql as $body$
declare
    taken text[] := '{}';
    sound text[];
    broken text[];
    seen text[] := '{}';
begin
    while cardinality(taken) < p_limit loop
        select array_agg(c.id) filter (where c.damage is null), array_agg(c.id) filter (where c.damage is not null)
        into sound, broken
        from (select j.id,
                     case when is_sound_v1(j) then null else 'damaged' end as damage
              from jobs j
              where j.queue = p_queue and j.state in (2, 4) and j.grp is null and j.wake <= p_now
                and (seen = '{}' or j.id <> all(seen))
              order by j.priority desc, j.due, j.seq
              limit p_limit - cardinality(taken)
              for no key update skip locked) as c;
        taken := taken || coalesce(sound, '{}');
        exit when broken is null;
        seen := seen || coalesce(sound, '{}') || broken;
        perform set_aside_v1(broken, p_now);
    end loop;
    return taken;
end
$body$;

-- The same from behind a place in the line (priority, due, seq). What is damaged waits for a look at all of it.
create or replace function take_above_v1(p_queue text, p_now bigint, p_limit integer, p_floor bigint[])
returns text[] language plpgsql as $body$
declare
    taken text[] := array(
        select j.id from jobs j
        where j.queue = p_queue and j.state in (2, 4) and j.grp is null and j.wake <= p_now
          and j.priority = p_floor[1] and (j.due, j.seq) > (p_floor[2], p_floor[3]) and damage_of_v1(j) is null
        order by j.due, j.seq limit p_limit for no key update skip locked);
begin
    if cardinality(taken) < p_limit then
        taken := taken || array(
            select j.id from jobs j
            where j.queue = p_queue and j.state in (2, 4) and j.grp is null and j.wake <= p_now
              and j.priority < p_floor[1] and damage_of_v1(j) is null
            order by j.priority desc, j.due, j.seq limit p_limit - cardinality(taken)
            for no key update skip locked);
    end if;
    return taken;
end
$body$;

-- How many entries of the indexes that a reserve walks this session has read so far, dead ones included.
create or replace function steps_v1()
returns bigint language sql as $body$
    select pg_stat_get_xact_tuples_returned('jobs_line'::regclass)
           + pg_stat_get_xact_tuples_returned('jobs_leases'::regclass)
           + pg_stat_get_xact_tuples_returned('jobs_calendar'::regclass);
$body$;

-- Up to p_more ids, behind those we have, from the lines of the groups of a queue that have room, the group first that
-- was served longest ago. Locks the groups it takes from and moves their counters.
create or replace function take_grouped_v1(p_queue text, p_now bigint, p_more integer, p_have text[])
returns text[] language plpgsql as $body$
declare
    taken text[] := p_have;
    p_limit integer := cardinality(p_have) + p_more;
    tried text[] := '{}';
    names text[];
    rooms integer[];
    share integer;
    c record;
    sound text[];
begin
    while cardinality(taken) < p_limit loop
        select array_agg(x.grp), array_agg(x.room) into names, rooms
        from (select g.grp, g.lim - g.inflight as room from groups g
              where g.queue = p_queue and g.waiting > 0 and g.inflight < g.lim and g.grp <> all(tried)
              order by g.served limit p_limit - cardinality(taken) for no key update skip locked) as x;
        exit when names is null;
        share := greatest(1, (p_limit - cardinality(taken)) / cardinality(names));
        for c in
            select n.grp,
                   array(select j.id from jobs j
                         where j.queue = p_queue and j.grp = n.grp and j.state in (2, 4) and j.wake <= p_now
                           and (taken = '{}' or j.id <> all(taken))
                         order by j.due, j.seq
                         -- A lease that was over for a faster clock holds its slot again for this one.
                         limit greatest(least(share, n.room - (
                             select count(*) from jobs h where h.queue = p_queue and h.grp = n.grp
                             and h.state in (2, 4) and h.due > p_now and h.wake > p_now and h.token is not null)), 0)
                         for no key update skip locked) as ids
            from unnest(names, rooms) as n(grp, room)
        loop
            if c.ids = '{}' then
                -- Locked by others, or only for a faster clock; or the counter was spoiled from outside.
                tried := tried || c.grp;
                update groups g set waiting = (select count(*) from jobs j where j.queue = p_queue and j.grp = c.grp
                                               and j.state in (2, 4)) - (
                                               select count(*) from jobs j where j.id = any(taken) and j.grp = c.grp)
                where g.queue = p_queue and g.grp = c.grp;
            else
                sound := drop_damaged_v1(p_queue, c.grp, c.ids, p_now);
                taken := taken || sound;
                if sound = '{}' and exists (select from jobs j where j.id = c.ids[1]) then
                    tried := tried || c.grp;  -- damaged, and kept as it is by somebody else
                end if;
            end if;
        end loop;
    end loop;
    return taken;
end
$body$;

-- Of the first members of a group: those that are sound, with their slots counted; the others are set aside.
create or replace function drop_damaged_v1(p_queue text, p_group text, p_ids text[], p_now bigint)
returns text[] language plpgsql as $body$
declare
    sound text[];
    broken text[];
    aside integer := 0;
begin
    select coalesce(array_agg(x.id order by x.n) filter (where damage_of_v1(j) is null), '{}'),
           array_agg(x.id) filter (where damage_of_v1(j) is not null)
    into sound, broken
    from unnest(p_ids) with ordinality as x(id, n) join jobs j on j.id = x.id;
    if broken is not null then
        aside := set_aside_v1(broken, p_now);
    end if;
    update groups g
    set waiting = greatest(g.waiting - cardinality(sound) - aside, 0), inflight = g.inflight + cardinality(sound),
        served = nextval('arrival')
    where g.queue = p_queue and g.grp = p_group;
    return sound;
end
$body$;

-- Up to p_limit ids of one queue; grouped and ungrouped jobs take turns.
create or replace function take_v1(p_queue text, p_now bigint, p_limit integer, p_floor bigint[])
returns text[] language plpgsql as $body$
declare
    taken text[];
    more text[];
    first_groups boolean;
begin
    if not exists (select from groups g where g.queue = p_queue and g.waiting > 0 and g.inflight < g.lim) then
        return case when p_floor is null then take_ungrouped_v1(p_queue, p_now, p_limit)
                    else take_above_v1(p_queue, p_now, p_limit, p_floor) end;
    end if;
    select q.groups_next into first_groups from queues q where q.queue = p_queue for update skip locked;
    if not found then  -- another reserve has it
        first_groups := random() < 0.5;
    end if;
    more := take_grouped_v1(p_queue, p_now, (p_limit + case when first_groups then 1 else 0 end) / 2, '{}');
    taken := case when p_floor is null then take_ungrouped_v1(p_queue, p_now, p_limit - cardinality(more))
                  else take_above_v1(p_queue, p_now, p_limit - cardinality(more), p_floor) end;
    if cardinality(more) + cardinality(taken) < p_limit then
        more := take_grouped_v1(p_queue, p_now, p_limit - cardinality(more) - cardinality(taken), more);
    end if;
    if cardinality(more) + cardinality(taken) > 0 then
        update queues q set groups_next = case when cardinality(more) = cardinality(taken) then first_groups
                                               else cardinality(more) < cardinality(taken) end
        where q.queue = any(array(select x.queue from queues x where x.queue = p_queue for update skip locked));
    end if;
    return more || taken;
end
$body$;

-- What few jobs have, of a job that is reserved: null, or JSON with bytes in hexadecimal.
create or replace function seldom_v1(j jobs)
returns text language sql stable as $body$
    select case when j.key is null and j.grp is null and j.depends_on is null and j.flow_id is null
                     and j.metadata is null and j.last_error is null and j.failed_at is null and j.reason is null
                     and j.handed_to is null and j.finished_at is null and j.result is null and j.group_limit = 0
                then null
                else json_build_array(encode(j.key, 'hex'), j.grp, j.group_limit, j.depends_on, j.flow_id, j.handed_to,
                                      j.metadata, j.last_error, j.failed_at, j.reason, j.finished_at,
                                      encode(j.result, 'hex'))::text end;
$body$;

create or replace function reserve_v1(p_queues text, p_now bigint, p_expires bigint, p_limit integer, p_worker text,
                                   p_tokens text, p_again boolean, p_floors text, p_durable boolean)
returns table (id text, queue text, type text, payload bytea, run_at bigint, timeout bigint, priority integer,
               attempts integer, max_attempts integer, deliveries integer, lost integer, created_at bigint,
               more text, token text)
language plpgsql
set search_path = "taskharbor", pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $body$
#variable_conflict use_column
declare
    number integer := 0;
    odd boolean;
    names text[];
    sorted text[];
    tokens text[] := string_to_array(p_tokens, ',');
    hungry text[] := '{}';
    taken text[] := '{}';
    found_ids text[];
    one text;
    quota integer;
    left_over integer;
    places integer;
    floors jsonb := coalesce(p_floors::jsonb, '{}');
    low bigint := coalesce((floors ->> 'low')::bigint, -1);
    walked bigint;
    steep boolean := false;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v1();
    end if;
    if not p_durable then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    if floors = '{}' and not p_again and json_array_length(p_queues::json) = 1 then
        -- The common case, in two statements: one queue, of which nothing but the line of the ungrouped is to be seen.
        -- The line is looked at once (materialized), and its rows are found by their places: whatever a planner
        -- believes, it has no other way.
        one := p_queues::json ->> 0;
        walked := steps_v1();
        select exists (select from jobs j where j.queue = one and j.state = 3 and j.wake <= p_now)
               or exists (select from jobs j where j.queue = one and j.state = 1 and j.wake <= p_now)
               or exists (select from groups g where g.queue = one and g.waiting > 0 and g.inflight < g.lim)
               or exists (select from queues q where q.queue = one and q.paused)
               or exists (select from limits l where l.queue = one and not l.applied)
               or exists (select from jobs j where j.state < 0 or j.state > 4)
        into odd;
        if not odd and steps_v1() - walked < 5000 then
            walked := steps_v1();
            return query
                with line as materialized (
                    select j.ctid as place,
                           case when is_sound_v1(j) then null else 'damaged' end as damage
                    from jobs j
                    where j.queue = one and j.state in (2, 4) and j.grp is null and j.wake <= p_now
                    order by j.priority desc, j.due, j.seq
                    limit p_limit
                    for no key update skip locked
                )
                update jobs j
                set state = 3, wake = p_expires, due = p_expires, token = tokens[t.n],
                    worker = p_worker, deliveries = j.deliveries + 1,
                    lost = j.lost + case when j.state = 4 then 1 else 0 end,
                    run_at = case when j.state = 4 then null else j.run_at end, settled = null, settled_as = null
                from (select l.place, row_number() over () as n from line l where l.damage is null) as t
                where j.ctid = t.place
                returning j.id, j.queue, j.type, j.payload, j.run_at, j.timeout, j.priority, j.attempts,
                    j.max_attempts, j.deliveries, j.lost, j.created_at, seldom_v1(j), j.token;
            get diagnostics number = row_count;
            if steps_v1() - walked > 1000 + 10 * p_limit then
                floors := jsonb_build_object('=' || one, coalesce(
                    (select jsonb_build_array(j.priority, j.due, j.seq - 1) from jobs j
                     where j.queue = one and j.state in (2, 4) and j.grp is null
                     order by j.priority desc, j.due, j.seq limit 1),
                    jsonb_build_array(0, greatest(p_now - 60000000, 0), 0)));
                steep := true;
            elsif number < p_limit and exists (select from jobs j where j.queue = one and j.state in (2, 4)
                                               and j.grp is null and j.wake <= p_now) then
                -- Damaged, or in other hands; or claimed and given back since we looked: its place was another by then, so
                -- its token was given to nobody, and the tokens that are left are not those after the first so many.
                if number > 0 then
                    tokens := array(
                        select x.t from (select unnest(tokens) collate "C" as t except
                                         select j.token from jobs j
                                         where j.queue = one and j.state = 3 and j.wake = p_expires) as x
                        order by x.t);
                end if;
                found_ids := lease_v1(take_ungrouped_v1(one, p_now, p_limit - number), p_expires, p_worker, tokens);
                return query select j.id, j.queue, j.type, j.payload, j.run_at, j.timeout, j.priority, j.attempts,
                    j.max_attempts, j.deliveries, j.lost, j.created_at, seldom_v1(j), j.token
                    from unnest(found_ids) as t(id) join jobs j on j.id = t.id collate "C";
            end if;
            if steep then
                token := floors::text;
                return next;
            end if;
            return;
        end if;
    end if;
    if p_again then
        found_ids := array(
            select j.id from jobs j, json_array_elements_text(p_queues::json) as q
            where j.queue = q and j.state = 3 and j.wake = p_expires
              and j.token in (select unnest(tokens)));
        if found_ids <> '{}' then
            return query select j.id, j.queue, j.type, j.payload, j.run_at, j.timeout, j.priority, j.attempts,
                j.max_attempts, j.deliveries, j.lost, j.created_at, seldom_v1(j), j.token
                from jobs j where j.id = any(found_ids);
            return;
        end if;
    end if;
    if json_array_length(p_queues::json) = 1 then
        one := p_queues::json ->> 0;
        if exists (select from queues q where q.queue = one and q.paused) then
            return;
        end if;
        names := array[one];
        sorted := names;
    else
        select array_agg(x.queue order by coalesce(q.served, 0), x.n) into names
        from (select y.queue, min(y.n) as n
              from json_array_elements_text(p_queues::json) with ordinality as y(queue, n) group by y.queue) as x
        left join queues q on q.queue = x.queue collate "C"
        where not coalesce(q.paused, false);
        sorted := array(select n from unnest(names) as n order by n collate "C");
    end if;
    places := coalesce(cardinality(names), 0);
    if places = 0 then
        return;
    end if;
    -- First of all, and in the order of names: two calls that are the first on the same queues must not cross.
    insert into queues (queue) select n from unnest(sorted) as n
    where not exists (select from queues q where q.queue = n collate "C") order by n collate "C" on conflict do nothing;
    walked := steps_v1();
    if in_turn_v1(sorted, p_now, low) then
        perform promote_v1(sorted, p_now, low);
    end if;
    if steps_v1() - walked > 5000 then
        floors := floors || jsonb_build_object('low', greatest(p_now - 1000000, 0));
        steep := true;
    end if;
    left_over := p_limit;
    for turn in 1..places loop
        one := names[turn];
        quota := (left_over + places - turn) / (places - turn + 1);
        continue when quota < 1;
        walked := steps_v1();
        found_ids := take_v1(one, p_now, quota, floor_of_v1(floors, one));
        if steps_v1() - walked > 1000 + 10 * quota then
            floors := floors || jsonb_build_object('=' || one, coalesce(
                (select jsonb_build_array(j.priority, j.due, j.seq) from jobs j
                 where j.id = found_ids[cardinality(found_ids)] and j.grp is null),
                jsonb_build_array(0, greatest(p_now - 60000000, 0), 0)));
            steep := true;
        end if;
        if cardinality(found_ids) = quota then
            hungry := hungry || one;
        end if;
        taken := taken || found_ids;
        left_over := left_over - cardinality(found_ids);
        if places > 1 and cardinality(found_ids) > 0 then
            update queues q set served = nextval('arrival')
            where q.queue = any(array(select x.queue from queues x where x.queue = one for update skip locked));
        end if;
    end loop;
    -- Turns are no quota: what one queue lacks, the others give.
    if left_over > 0 and hungry <> '{}' then
        taken := lease_v1(taken, p_expires, p_worker, tokens);
        foreach one in array hungry loop
            exit when left_over < 1;
            found_ids := take_v1(one, p_now, left_over, floor_of_v1(floors, one));
            found_ids := lease_v1(found_ids, p_expires, p_worker, tokens[p_limit - left_over + 1:]);
            left_over := left_over - cardinality(found_ids);
            taken := taken || found_ids;
        end loop;
        return query select j.id, j.queue, j.type, j.payload, j.run_at, j.timeout, j.priority, j.attempts,
            j.max_attempts, j.deliveries, j.lost, j.created_at, seldom_v1(j), j.token
            from unnest(taken) as t(id) join jobs j on j.id = t.id collate "C";
    elsif taken <> '{}' then
        return query
            update jobs j
            set state = 3, wake = p_expires, due = p_expires, token = t.token,
                worker = p_worker, deliveries = j.deliveries + 1,
                lost = j.lost + case when j.state = 4 then 1 else 0 end,
                run_at = case when j.state = 4 then null else j.run_at end, settled = null, settled_as = null
            from unnest(taken, tokens[:cardinality(taken)]) as t(id, token)
            where j.id = t.id collate "C"
            returning j.id, j.queue, j.type, j.payload, j.run_at, j.timeout, j.priority, j.attempts,
                j.max_attempts, j.deliveries, j.lost, j.created_at, seldom_v1(j), j.token;
    end if;
    if steep then
        token := floors::text;
        return next;
    end if;
end
$body$;

-- Where to begin in the line of a queue, or null.
create or replace function floor_of_v1(p_floors jsonb, p_queue text)
returns bigint[] language sql immutable as $body$
    select case when p_floors ? ('=' || p_queue) then array[(p_floors -> ('=' || p_queue) ->> 0)::bigint,
        (p_floors -> ('=' || p_queue) ->> 1)::bigint, (p_floors -> ('=' || p_queue) ->> 2)::bigint] end;
$body$;

-- Put jobs that were taken from their lines under leases. Answers their ids.
create or replace function lease_v1(p_ids text[], p_expires bigint, p_worker text, p_tokens text[])
returns text[] language plpgsql as $body$
begin
    update jobs j
    set state = 3, wake = p_expires, due = p_expires, token = t.token,
        worker = p_worker, deliveries = j.deliveries + 1,
        lost = j.lost + case when j.state = 4 then 1 else 0 end,
        run_at = case when j.state = 4 then null else j.run_at end, settled = null, settled_as = null
    from unnest(p_ids, p_tokens[:cardinality(p_ids)]) as t(id, token)
    where j.id = t.id collate "C";
    return p_ids;
end
$body$;
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
create or replace function settle_v1(p_given text, p_now bigint, p_release boolean)
returns table (o integer, code integer, ends bigint) language plpgsql
set search_path = "taskharbor", pg_temp set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $body$
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
        perform refuse_isolation_v1();
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
        from release_dependents_v1(acked, acked_o, p_now, base) as r;
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
        perform regroup_v1(group_queues, group_names,
                        array(select case when s = 3 then -1 else 0 end from unnest(group_states) as s),
                        array(select case when s = 4 then -1 else 0 end from unnest(group_states) as s));
    end if;
    told := group_queues || again_queues || released_queues;
    if told is not null then
        perform hint_v1(told, false);
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
create or replace function ack_v1(p_ids text, p_tokens text, p_results text, p_now bigint)
returns text language plpgsql
set search_path = "taskharbor", pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
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
        perform refuse_isolation_v1();
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
        from release_dependents_v1(acked, acked_o, p_now, nextval('arrival') << 20) as r;
    end if;
    if group_names is not null then
        perform regroup_v1(group_queues, group_names,
                        array(select case when s = 3 then -1 else 0 end from unnest(group_states) as s),
                        array(select case when s = 4 then -1 else 0 end from unnest(group_states) as s));
        told := told || group_queues;
    end if;
    if told is not null then
        perform hint_v1(told, false);
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
create or replace function release_dependents_v1(p_done text[], p_places integer[], p_now bigint, p_base bigint,
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
create or replace function hand_over_v1(p_old text, p_new text, p_dependents text, p_now bigint)
returns text language plpgsql set search_path = "taskharbor", pg_temp set jit = off set enable_seqscan = off as $body$
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
        perform refuse_isolation_v1();
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
        perform hint_v1(told, false);
    end if;
    return null;
end
$body$;
-- Extend leases. in: JSON array of o, id, token (each job once); out: for each (o, code, ends), codes as in settle, and
-- 5: it holds until `ends`. locks: the jobs that nobody else has locked: it waits for none, so that no lease is lost
-- because of another's job
create or replace function extend_v1(p_given text, p_now bigint, p_until bigint)
returns table (o integer, code integer, ends bigint) language plpgsql
set search_path = "taskharbor", pg_temp set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $body$
#variable_conflict use_column
declare
    group_queues text[];
    group_names text[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v1();
    end if;
    with held as (
        update jobs j set wake = p_until, due = p_until, state = 3, open = j.state  -- where it stood before
        from (select x.place, i.token from json_to_recordset(p_given::json) as i(id text, token text),
                     lateral (select y.ctid as place from jobs y where y.id = i.id collate "C"
                              and y.token = i.token collate "C" and y.state in (3, 4)
                              and y.wake > p_now and y.wake < p_until
                              limit 1 for no key update skip locked) as x) as g
        where j.ctid = g.place
        returning j.queue, j.grp, j.open as was
    )
    select array_agg(held.queue), array_agg(held.grp) into group_queues, group_names
    from held where held.grp is not null and held.was = 4;
    if group_names is not null then  -- a faster clock had seen them expire
        perform regroup_v1(group_queues, group_names, array_fill(1, array[cardinality(group_names)]),
                        array_fill(-1, array[cardinality(group_names)]));
    end if;
    return query
        select g.o,
               case when j.id is null and h.id is null then 1
                    when j.id is null or j.state not in (3, 4) then 2
                    when j.token <> g.token then 3
                    when j.wake <= p_now then 4
                    when j.wake >= p_until then 5
                    else 6 end,
               j.wake
        from json_to_recordset(p_given::json) as g(o integer, id text, token text)
        left join jobs j on j.id = g.id collate "C"
        left join history h on h.id = g.id collate "C";
end
$body$;

-- Give back what a worker holds under valid leases, except some tokens, in the order of its old arrival.
-- out: how many, and how many more somebody else has locked: to be called again for these
-- locks: the jobs that nobody else has locked, then their groups
create or replace function release_v1(p_worker text, p_now bigint, p_keep text, out released integer, out locked integer)
language plpgsql set search_path = "taskharbor", pg_temp set jit = off set enable_seqscan = off as $body$
declare
    base bigint := nextval('arrival') << 20;
    kept text[] := array(select json_array_elements_text(p_keep::json));
    found_ids text[];
    ids text[];
    held record;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v1();
    end if;
    -- Found through the indexes of what is leased; looked at again once it is locked.
    found_ids := array(select x.id from jobs x where x.state = 3 and x.worker = p_worker
                       union all select x.id from jobs x where x.state = 4 and x.worker = p_worker);
    ids := array(select j.id from jobs j
                 where j.id = any(found_ids)
                   and j.state in (3, 4) and j.worker = p_worker and j.wake > p_now and j.token <> all(kept)
                 for no key update skip locked);
    released := cardinality(ids);
    locked := (select count(*) from jobs j
               where j.id = any(found_ids)
                 and j.state in (3, 4) and j.worker = p_worker and j.wake > p_now and j.token <> all(kept)) - released;
    if ids = '{}' then
        return;
    end if;
    select array_agg(j.queue) filter (where j.grp is not null) as group_queues,
           array_agg(j.grp) filter (where j.grp is not null) as group_names,
           array_agg(j.state) filter (where j.grp is not null) as states,
           array_agg(distinct j.queue) as told
    into held from jobs j where j.id = any(ids);
    update jobs j
    set state = case when j.grp is null then 2 else 1 end, wake = 0, due = p_now, seq = base + x.n, run_at = null,
        lost = least(j.lost, 2147483646) + 1, token = null, worker = null
    from (select y.id, row_number() over (order by y.seq) as n from jobs y where y.id = any(ids)) as x
    where j.id = x.id;
    if held.group_names is not null then
        perform regroup_v1(held.group_queues, held.group_names,
                        array(select case when s = 3 then -1 else 0 end from unnest(held.states) as s),
                        array(select case when s = 4 then -1 else 0 end from unnest(held.states) as s));
    end if;
    perform hint_v1(held.told, false);
end
$body$;
-- Deciding over jobs from outside. Each takes JSON arrays of ids and answers, in their order, a text for each:
-- null: done; 'unknown'; 'needed N': N unfinished jobs depend on it; 'locked': somebody else has it, to be sent again; else
-- the state that was the wrong one.
-- locks: the jobs that nobody else has locked (none is waited for while others are held), then edges in their order, then
-- groups and flows in the order of names

-- The state of the contract at a moment.
create or replace function state_of_v1(p_state integer, p_run_at bigint, p_wake bigint, p_now bigint)
returns text language sql immutable as $body$
    select case p_state when 0 then 'blocked'
                        when 1 then case when p_run_at > p_now then 'scheduled' else 'ready' end
                        when 2 then case when p_run_at > p_now then 'scheduled' else 'ready' end
                        when 3 then case when p_wake > p_now then 'inflight' else 'ready' end
                        when 4 then case when p_wake > p_now then 'inflight' else 'ready' end
                        when 5 then 'done' when 6 then 'dlq' when 7 then 'cancelled' else 'dlq' end;
$body$;

create or replace function cancel_v1(p_ids text, p_now bigint, p_reason text)
returns text[] language plpgsql set search_path = "taskharbor", pg_temp set jit = off set enable_seqscan = off as $body$
declare
    ids text[] := array(select json_array_elements_text(p_ids::json));
    answers text[] := '{}';
    one text;
    j jobs;
    was integer;
    group_queues text[] := '{}';
    group_names text[] := '{}';
    states integer[] := '{}';
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v1();
    end if;
    foreach one in array ids loop
        perform from jobs x where x.id = one and x.state + 0 between 0 and 4 for update skip locked;
        if found then
            delete from jobs x where x.id = one returning x.* into j;
        end if;
        if found then
            if j.grp is not null and j.state > 1 then
                group_queues := group_queues || j.queue;
                group_names := group_names || j.grp;
                states := states || j.state::integer;
            end if;
            j := set_finished_v1(j, 7::smallint, p_reason, p_now);
            insert into history select (j).*;
            answers := answers || null::text;
        else
            select r.state into was from records r where r.id = one;
            answers := answers || case when not found then 'unknown' when was = 7 then null when was = 5 then 'done'
                                       when was between 0 and 4 then 'locked' else 'dlq' end;
        end if;
    end loop;
    if group_names <> '{}' then
        perform regroup_v1(group_queues, group_names,
                        array(select case when s = 3 then -1 else 0 end from unnest(states) as s),
                        array(select case when s in (2, 4) then -1 else 0 end from unnest(states) as s));
        perform hint_v1(group_queues, false);
    end if;
    return answers;
end
$body$;

-- Cancel what is not terminal in a flow, and note that the flow is cancelled.
-- out: how many were cancelled, and how many more somebody else has locked: to be called again for these
-- locks: the flow, alone: whoever stores into it has done so, or comes after; then as cancel
create or replace function cancel_flow_v1(p_flow text, p_now bigint, out cancelled integer, out locked integer)
language plpgsql set search_path = "taskharbor", pg_temp set jit = off set enable_seqscan = off as $body$
declare
    answers text[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v1();
    end if;
    cancelled := 0;
    locked := 0;
    if not lock_flow_v1(p_flow) then
        locked := 1;
        return;
    end if;
    if not exists (select from jobs j where j.flow_id = p_flow)
       and not exists (select from history h where h.flow_id = p_flow) then
        return;
    end if;
    insert into flows (flow_id) values (p_flow) on conflict do nothing;
    answers := cancel_v1(coalesce((select json_agg(j.id order by j.id)::text from jobs j
                                where j.flow_id = p_flow and j.state between 0 and 4), '[]'), p_now, 'flow cancelled');
    select count(*) filter (where a is null), count(*) filter (where a = 'locked') into cancelled, locked
    from unnest(answers) as a;
end
$body$;

-- locks: beside the jobs the dependencies of each, in the weakest mode, so that none is pruned or deleted unseen; one that
-- somebody else has locked makes the job count as locked
create or replace function requeue_v1(p_ids text, p_now bigint, p_run_at bigint, p_reset boolean)
returns text[] language plpgsql set search_path = "taskharbor", pg_temp set jit = off set enable_seqscan = off as $body$
declare
    base bigint := nextval('arrival') << 20;
    ids text[] := array(select json_array_elements_text(p_ids::json));
    answers text[] := '{}';
    told text[] := '{}';
    resumed text[] := '{}';
    one text;
    j jobs;
    n integer := 0;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v1();
    end if;
    foreach one in array ids loop
        n := n + 1;
        select x.* into j from history x where x.id = one and x.state + 0 in (6, 7) for update skip locked;
        if not found then
            select x.* into j from jobs x where x.id = one and x.state + 0 not between 0 and 4 for update skip locked;
        end if;
        if not found then
            select coalesce((select case when r.state not between 0 and 5 then 'locked'
                                         else state_of_v1(r.state, r.run_at, r.wake, p_now) end
                             from records r where r.id = one), 'unknown') into j.reason;
            answers := answers || j.reason;
            continue;
        end if;
        if not keep_all_v1(j.depends_on) then
            answers := answers || 'locked'::text;
            continue;
        end if;
        delete from history x where x.id = one;
        delete from jobs x where x.id = one;
        j.reason := null;
        j.finished_at := null;
        j.lost := 0;
        j.run_at := p_run_at;
        j.token := null;
        j.worker := null;
        j.open := 0;
        if p_reset then
            j.attempts := 0;
        end if;
        if j.flow_id is not null then
            resumed := resumed || j.flow_id;
        end if;
        if j.depends_on is not null then
            insert into edges (dependency, dependent)
            select distinct r.id, one from records r where r.id = any(j.depends_on) and r.id <> one
            on conflict do nothing;
            j.open := (select count(*) from edges e where e.dependent = one
                       and not exists (select from history h where h.id = e.dependency and h.state + 0 = 5));
        end if;
        j.wake := coalesce(p_run_at, 0);
        j.due := greatest(coalesce(p_run_at, 0), p_now);
        j.seq := base + n;
        j.state := case when j.open > 0 then 0 when j.grp is null and coalesce(p_run_at, 0) <= p_now then 2 else 1 end;
        insert into jobs select (j).*;
        told := told || j.queue;
        answers := answers || null::text;
    end loop;
    if resumed <> '{}' then
        delete from flows f where f.ctid = any(array(
            select x.ctid from flows x where x.flow_id = any(resumed) order by x.flow_id for update));
    end if;
    if told <> '{}' then
        perform hint_v1(told, false);
    end if;
    return answers;
end
$body$;

-- Keep records from being settled, pruned or deleted until this commits. False: somebody else has one of them locked.
create or replace function keep_all_v1(p_ids text[])
returns boolean language plpgsql as $body$
declare
    kept text[];
begin
    if p_ids is null then
        return true;
    end if;
    kept := array(select h.id from history h where h.id = any(p_ids) for key share skip locked);
    kept := kept || array(select j.id from jobs j where j.id = any(p_ids) for key share skip locked);
    -- A new look: what has moved from one table to the other meanwhile is in one of them.
    return not exists (select r.id from records r where r.id = any(p_ids) except select unnest(kept) collate "C");
end
$body$;

-- How many unfinished jobs (neither done nor cancelled) depend on a job.
create or replace function holds_v1(p_id text)
returns bigint language sql stable as $body$
    select count(*) from edges e where e.dependency = p_id
    and (exists (select from jobs j where j.id = e.dependent)
         or exists (select from history h where h.id = e.dependent and h.state + 0 not in (5, 7)));
$body$;

-- Whether one does, without counting them.
create or replace function is_needed_v1(p_id text)
returns boolean language sql stable as $body$
    select exists (select from edges e where e.dependency = p_id
    and (exists (select from jobs j where j.id = e.dependent)
         or exists (select from history h where h.id = e.dependent and h.state + 0 not in (5, 7))));
$body$;

-- Forget what belongs to records that were deleted: for each an id, a queue, a key and a flow, the last two if it has one.
-- locks: edges and flows, each in their order: two who forget neighbours never wait for each other
create or replace function forget_v1(p_ids text[], p_queues text[], p_keys bytea[], p_flows text[])
returns void language plpgsql as $body$
declare
    flow text;
begin
    if p_ids = '{}' then
        return;
    end if;
    delete from edges e where e.ctid = any(array(
        select x.ctid from edges x
        where x.ctid = any(array(select a.ctid from edges a where a.dependency = any(p_ids)
                                 union select b.ctid from edges b where b.dependent = any(p_ids)))
        order by x.dependency, x.dependent for update));
    delete from keys k where k.ctid = any(array(
        select y.place from unnest(p_ids, p_queues, p_keys) as x(id, queue, key),
            lateral (select z.ctid as place from keys z
                     where z.queue = x.queue collate "C" and z.key = x.key and z.id = x.id limit 1) as y));
    for flow in select distinct f from unnest(p_flows) as f
                where f is not null and exists (select from flows y where y.flow_id = f) order by 1 loop
        if not exists (select from jobs x where x.flow_id = flow)
           and not exists (select from history x where x.flow_id = flow) then
            delete from flows f where f.flow_id = flow;
        end if;
    end loop;
end
$body$;

create or replace function delete_jobs_v1(p_ids text)
returns text[] language plpgsql set search_path = "taskharbor", pg_temp set jit = off set enable_seqscan = off as $body$
declare
    ids text[] := array(select json_array_elements_text(p_ids::json));
    answers text[] := '{}';
    gone text[] := '{}';
    queues text[] := '{}';
    keys bytea[] := '{}';
    flows text[] := '{}';
    one text;
    j jobs;
    needed bigint;
    group_queues text[] := '{}';
    group_names text[] := '{}';
    states integer[] := '{}';
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v1();
    end if;
    foreach one in array ids loop
        select x.* into j from jobs x where x.id = one for update skip locked;
        if not found then
            select x.* into j from history x where x.id = one for update skip locked;
        end if;
        if not found then
            answers := answers || case when exists (select from records r where r.id = one) then 'locked'
                                       else 'unknown' end;
            continue;
        end if;
        needed := holds_v1(one);
        if needed > 0 then
            answers := answers || ('needed ' || needed);
            continue;
        end if;
        delete from history x where x.id = one;
        delete from jobs x where x.id = one;
        if found and j.grp is not null and (j.state in (2, 3, 4) or j.token is not null) then
            group_queues := group_queues || j.queue;
            group_names := group_names || j.grp;
            states := states || j.state::integer;
        end if;
        gone := gone || one;
        queues := queues || j.queue;
        keys := keys || j.key;
        flows := flows || j.flow_id;
        answers := answers || null::text;
    end loop;
    perform forget_v1(gone, queues, keys, flows);
    if group_names <> '{}' then
        perform regroup_v1(group_queues, group_names,
                        array(select case when s in (2, 4) then 0 else -1 end from unnest(states) as s),
                        array(select case when s in (2, 4) then -1 else 0 end from unnest(states) as s));
        perform hint_v1(group_queues, false);
    end if;
    return answers;
end
$body$;
-- Retention. A flow is looked at as one: whether an open or a dead job holds it is asked once, through two indexes, so
-- that its size does not matter. What is held back is not looked at by every call: each goes on where the last one ended
-- (the table sweep), begins again at the end, and gives up after some thousand looks whatever it has found.

-- Whether a job of the flow is neither done nor cancelled.
create or replace function is_held_v1(p_flow text)
returns boolean language plpgsql stable as $body$
begin
    return exists (select from jobs j where j.flow_id = p_flow)
           or exists (select from history h where coalesce(h.flow_id, '') = p_flow and h.state + 0 = 6);
end
$body$;

-- How many entries of the indexes that a prune walks this session has read so far, dead ones included.
create or replace function prune_steps_v1()
returns bigint language sql as $body$
    select pg_stat_get_xact_tuples_returned('history_sweep'::regclass)
           + pg_stat_get_xact_tuples_returned('history_held'::regclass)
           + pg_stat_get_xact_tuples_returned('jobs_flow'::regclass);
$body$;

-- Forget up to p_limit done and cancelled jobs that finished before a moment: those of no flow, then flow by flow, of each
-- the oldest first. Answers how many.
-- locks: what it deletes, and the place where the next call begins; what somebody else has locked is left for the next round
create or replace function prune_v1(p_before bigint, p_limit integer)
returns integer language plpgsql
set search_path = "taskharbor", pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $body$
#variable_conflict use_column
declare
    oldest constant bigint := '-9223372036854775808';
    here sweep;
    began sweep;
    is_ours boolean;
    is_wrapped boolean := false;
    is_over boolean;  -- nothing more of this flow
    looks integer := 5000;  -- left for what is held back
    walked constant bigint := prune_steps_v1();
    wanted integer;
    next_flow text;
    found_ids text[];
    moments bigint[];
    places tid[];
    batch record;
    gone text[] := '{}';
    queues text[] := '{}';
    keys bytea[] := '{}';
    flows text[] := '{}';
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation_v1();
    end if;
    select s.* into here from sweep s for update skip locked;
    is_ours := found;
    if not is_ours then  -- the first call of all, or another one has it
        here := (true, '', oldest, '');
    end if;
    began := here;
    while cardinality(gone) < p_limit and looks > 0 and prune_steps_v1() - walked < 20000 + 10 * p_limit loop
        if here.flow <> '' and is_held_v1(here.flow) then
            is_over := true;
        else
            wanted := least(p_limit - cardinality(gone), 500);
            select coalesce(array_agg(x.id), '{}'), array_agg(x.finished_at) into found_ids, moments
            from (select h.id, h.finished_at from history h
                  where h.state in (5, 7) and coalesce(h.flow_id, '') = here.flow collate "C"
                    and h.finished_at < p_before and (h.finished_at, h.id) > (here.finished_at, here.id collate "C")
                  order by h.finished_at, h.id limit wanted) as x;
            is_over := cardinality(found_ids) < wanted;
            if found_ids <> '{}' then
                places := array(select h.ctid from history h where h.id = any(found_ids) and h.state + 0 in (5, 7)
                                and h.finished_at < p_before for update skip locked);
                -- A new look, now that nobody can be made dependent on them.
                with deleted as (
                    delete from history h where h.ctid = any(places) and not is_needed_v1(h.id)
                    returning h.id, h.queue, h.key, h.flow_id
                )
                select coalesce(array_agg(d.id), '{}') as ids, array_agg(d.queue) as queues, array_agg(d.key) as keys,
                       array_agg(d.flow_id) as flows
                into batch from deleted d;
                gone := gone || batch.ids;
                queues := queues || batch.queues;
                keys := keys || batch.keys;
                flows := flows || batch.flows;
                looks := looks - cardinality(found_ids) + cardinality(batch.ids);
                here.finished_at := moments[cardinality(moments)];
                here.id := found_ids[cardinality(found_ids)];
            end if;
        end if;
        continue when not is_over;
        looks := looks - 1;
        select coalesce(h.flow_id, '') into next_flow from history h
        where h.state in (5, 7) and coalesce(h.flow_id, '') > here.flow collate "C"
        order by coalesce(h.flow_id, ''), h.finished_at, h.id limit 1;
        if not found then
            here := (true, '', oldest, '');
            exit when is_wrapped or began = here;
            is_wrapped := true;
        else
            here := (true, next_flow, oldest, '');
            exit when is_wrapped and next_flow > began.flow collate "C";
        end if;
    end loop;
    perform forget_v1(gone, queues, keys, flows);
    if is_ours then
        update sweep s set flow = here.flow, finished_at = here.finished_at, id = here.id where here <> began;
    else
        insert into sweep values (here.*) on conflict do nothing;
    end if;
    delete from groups g where g.ctid = any(array(
        select x.ctid from groups x where x.waiting = 0 and x.inflight = 0 limit 1000 for update skip locked));
    return cardinality(gone);
end
$body$;
do $body$
declare
    old regprocedure;
begin
    for old in
        select p.oid::regprocedure from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname = current_schema() and p.proname ~ '_v[0-9]+$'
          and substring(p.proname from '_v([0-9]+)$')::integer < (select max(m.oldest) from meta m)
    loop
        execute format('drop function %s', old);
    end loop;
end
$body$;
commit;
