-- Deciding over jobs from outside. Each takes JSON arrays of ids and answers, in their order, a text for each:
-- null: done; 'unknown'; 'needed N': N unfinished jobs depend on it; 'locked': somebody else has it, to be sent again; else
-- the state that was the wrong one.
-- locks: the jobs that nobody else has locked (none is waited for while others are held), then edges in their order, then
-- groups and flows in the order of names

-- The state of the contract at a moment.
create or replace function state_of(p_state integer, p_run_at bigint, p_wake bigint, p_now bigint)
returns text language sql immutable as $body$
    select case p_state when 0 then 'blocked'
                        when 1 then case when p_run_at > p_now then 'scheduled' else 'ready' end
                        when 2 then case when p_run_at > p_now then 'scheduled' else 'ready' end
                        when 3 then case when p_wake > p_now then 'inflight' else 'ready' end
                        when 4 then case when p_wake > p_now then 'inflight' else 'ready' end
                        when 5 then 'done' when 6 then 'dlq' when 7 then 'cancelled' else 'dlq' end;
$body$;

create or replace function cancel(p_ids text, p_now bigint, p_reason text)
returns text[] language plpgsql set search_path = @schema@, pg_temp set jit = off set enable_seqscan = off as $body$
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
        perform refuse_isolation();
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
            j := set_finished(j, 7::smallint, p_reason, p_now);
            insert into history select (j).*;
            answers := answers || null::text;
        else
            select r.state into was from records r where r.id = one;
            answers := answers || case when not found then 'unknown' when was = 7 then null when was = 5 then 'done'
                                       when was between 0 and 4 then 'locked' else 'dlq' end;
        end if;
    end loop;
    if group_names <> '{}' then
        perform regroup(group_queues, group_names,
                        array(select case when s = 3 then -1 else 0 end from unnest(states) as s),
                        array(select case when s in (2, 4) then -1 else 0 end from unnest(states) as s));
        perform hint(group_queues, false);
    end if;
    return answers;
end
$body$;

-- Cancel what is not terminal in a flow, and note that the flow is cancelled.
-- out: how many were cancelled, and how many more somebody else has locked: to be called again for these
-- locks: the flow, alone: whoever stores into it has done so, or comes after; then as cancel
create or replace function cancel_flow(p_flow text, p_now bigint, out cancelled integer, out locked integer)
language plpgsql set search_path = @schema@, pg_temp set jit = off set enable_seqscan = off as $body$
declare
    answers text[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation();
    end if;
    cancelled := 0;
    locked := 0;
    if not lock_flow(p_flow) then
        locked := 1;
        return;
    end if;
    if not exists (select from jobs j where j.flow_id = p_flow)
       and not exists (select from history h where h.flow_id = p_flow) then
        return;
    end if;
    insert into flows (flow_id) values (p_flow) on conflict do nothing;
    answers := cancel(coalesce((select json_agg(j.id order by j.id)::text from jobs j
                                where j.flow_id = p_flow and j.state between 0 and 4), '[]'), p_now, 'flow cancelled');
    select count(*) filter (where a is null), count(*) filter (where a = 'locked') into cancelled, locked
    from unnest(answers) as a;
end
$body$;

-- locks: beside the jobs the dependencies of each, in the weakest mode, so that none is pruned or deleted unseen; one that
-- somebody else has locked makes the job count as locked
create or replace function requeue(p_ids text, p_now bigint, p_run_at bigint, p_reset boolean)
returns text[] language plpgsql set search_path = @schema@, pg_temp set jit = off set enable_seqscan = off as $body$
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
        perform refuse_isolation();
    end if;
    foreach one in array ids loop
        n := n + 1;
        select x.* into j from history x where x.id = one and x.state + 0 in (6, 7) for update skip locked;
        if not found then
            select x.* into j from jobs x where x.id = one and x.state + 0 not between 0 and 4 for update skip locked;
        end if;
        if not found then
            select coalesce((select case when r.state not between 0 and 5 then 'locked'
                                         else state_of(r.state, r.run_at, r.wake, p_now) end
                             from records r where r.id = one), 'unknown') into j.reason;
            answers := answers || j.reason;
            continue;
        end if;
        if not keep_all(j.depends_on) then
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
        perform hint(told, false);
    end if;
    return answers;
end
$body$;

-- Keep records from being settled, pruned or deleted until this commits. False: somebody else has one of them locked.
create or replace function keep_all(p_ids text[])
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
create or replace function holds(p_id text)
returns bigint language sql stable as $body$
    select count(*) from edges e where e.dependency = p_id
    and (exists (select from jobs j where j.id = e.dependent)
         or exists (select from history h where h.id = e.dependent and h.state + 0 not in (5, 7)));
$body$;

-- Whether one does, without counting them.
create or replace function is_needed(p_id text)
returns boolean language sql stable as $body$
    select exists (select from edges e where e.dependency = p_id
    and (exists (select from jobs j where j.id = e.dependent)
         or exists (select from history h where h.id = e.dependent and h.state + 0 not in (5, 7))));
$body$;

-- Forget what belongs to records that were deleted: for each an id, a queue, a key and a flow, the last two if it has one.
-- locks: edges and flows, each in their order: two who forget neighbours never wait for each other
create or replace function forget(p_ids text[], p_queues text[], p_keys bytea[], p_flows text[])
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

create or replace function delete_jobs(p_ids text)
returns text[] language plpgsql set search_path = @schema@, pg_temp set jit = off set enable_seqscan = off as $body$
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
        perform refuse_isolation();
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
        needed := holds(one);
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
    perform forget(gone, queues, keys, flows);
    if group_names <> '{}' then
        perform regroup(group_queues, group_names,
                        array(select case when s in (2, 4) then 0 else -1 end from unnest(states) as s),
                        array(select case when s in (2, 4) then -1 else 0 end from unnest(states) as s));
        perform hint(group_queues, false);
    end if;
    return answers;
end
$body$;

