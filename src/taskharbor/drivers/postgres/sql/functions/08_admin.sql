-- Deciding over jobs from outside. Each takes JSON arrays of ids and answers, in their order, a text for each:
-- null: done; 'unknown'; 'needed N': N unfinished jobs depend on it; else the state that was the wrong one.
-- locks: the jobs in the order of ids, then groups in the order of names

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
returns text[] language plpgsql set search_path = @schema@, pg_temp set enable_seqscan = off as $body$
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
    perform from jobs x where x.id = any(ids) order by x.id for update;
    foreach one in array ids loop
        delete from jobs x where x.id = one and x.state between 0 and 4 returning x.* into j;
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
            answers := answers || case when not found then 'unknown' when was = 7 then null
                                       when was = 5 then 'done' else 'dlq' end;
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

-- locks: the bucket of the flow, alone: whoever stores into it has done so, or comes after
create or replace function cancel_flow(p_flow text, p_now bigint)
returns integer language plpgsql set search_path = @schema@, pg_temp set enable_seqscan = off as $body$
declare
    answers text[];
begin
    perform pg_advisory_xact_lock(1952540008, mod(abs(hashtext(p_flow)::bigint), 64)::integer);
    if not exists (select from jobs j where j.flow_id = p_flow)
       and not exists (select from history h where h.flow_id = p_flow) then
        return 0;
    end if;
    insert into flows (flow_id) values (p_flow) on conflict do nothing;
    answers := cancel(coalesce((select json_agg(j.id order by j.id)::text from jobs j
                                where j.flow_id = p_flow and j.state between 0 and 4), '[]'), p_now, 'flow cancelled');
    return (select count(*) from unnest(answers) as a where a is null);
end
$body$;

create or replace function requeue(p_ids text, p_now bigint, p_run_at bigint, p_reset boolean)
returns text[] language plpgsql set search_path = @schema@, pg_temp set enable_seqscan = off as $body$
declare
    base bigint := nextval('arrival') << 20;
    ids text[] := array(select json_array_elements_text(p_ids::json));
    answers text[] := '{}';
    told text[] := '{}';
    one text;
    j jobs;
    n integer := 0;
begin
    perform from history x where x.id = any(ids) order by x.id for update;
    foreach one in array ids loop
        n := n + 1;
        delete from history x where x.id = one and x.state in (6, 7) returning x.* into j;
        if not found then
            delete from jobs x where x.id = one and x.state not between 0 and 4 returning x.* into j;
        end if;
        if not found then
            select coalesce((select state_of(r.state, r.run_at, r.wake, p_now) from records r where r.id = one),
                            'unknown') into j.reason;
            answers := answers || j.reason;
            continue;
        end if;
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
            delete from flows f where f.flow_id = j.flow_id;
        end if;
        if j.depends_on is not null then
            perform from jobs d where d.id = any(j.depends_on) order by d.id for key share;
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
    if told <> '{}' then
        perform hint(told, false);
    end if;
    return answers;
end
$body$;

-- How many unfinished jobs (neither done nor cancelled) depend on a job.
create or replace function holds(p_id text)
returns bigint language sql stable as $body$
    select count(*) from edges e where e.dependency = p_id
    and not exists (select from history h where h.id = e.dependent and h.state + 0 in (5, 7));
$body$;

-- Forget what belongs to a record that was deleted.
create or replace function forget(p_id text, p_queue text, p_key bytea, p_flow text)
returns void language plpgsql as $body$
begin
    delete from edges e where e.dependency = p_id;
    delete from edges e where e.dependent = p_id;
    if p_key is not null then
        delete from keys k where k.queue = p_queue and k.key = p_key and k.id = p_id;
    end if;
    if p_flow is not null and not exists (select from jobs x where x.flow_id = p_flow)
       and not exists (select from history x where x.flow_id = p_flow) then
        delete from flows f where f.flow_id = p_flow;
    end if;
end
$body$;

create or replace function delete_jobs(p_ids text)
returns text[] language plpgsql set search_path = @schema@, pg_temp set enable_seqscan = off as $body$
declare
    ids text[] := array(select json_array_elements_text(p_ids::json));
    answers text[] := '{}';
    one text;
    j jobs;
    needed bigint;
    group_queues text[] := '{}';
    group_names text[] := '{}';
    states integer[] := '{}';
begin
    perform from jobs x where x.id = any(ids) order by x.id for update;
    perform from history x where x.id = any(ids) order by x.id for update;
    foreach one in array ids loop
        needed := holds(one);
        if not exists (select from records r where r.id = one) then
            answers := answers || 'unknown'::text;
            continue;
        elsif needed > 0 then
            answers := answers || ('needed ' || needed);
            continue;
        end if;
        delete from jobs x where x.id = one returning x.* into j;
        if not found then
            delete from history x where x.id = one returning x.* into j;
        elsif j.grp is not null and (j.state in (2, 3, 4) or j.token is not null) then
            group_queues := group_queues || j.queue;
            group_names := group_names || j.grp;
            states := states || j.state::integer;
        end if;
        perform forget(j.id, j.queue, j.key, j.flow_id);
        answers := answers || null::text;
    end loop;
    if group_names <> '{}' then
        perform regroup(group_queues, group_names,
                        array(select case when s in (2, 4) then 0 else -1 end from unnest(states) as s),
                        array(select case when s in (2, 4) then -1 else 0 end from unnest(states) as s));
        perform hint(group_queues, false);
    end if;
    return answers;
end
$body$;

-- Forget up to p_limit done and cancelled jobs that finished before a moment, the oldest first.
-- locks: what it deletes; what somebody else has locked is left for the next time
create or replace function prune(p_before bigint, p_limit integer)
returns integer language plpgsql set search_path = @schema@, pg_temp set enable_seqscan = off as $body$
declare
    gone integer := 0;
    one record;
begin
    for one in
        select h.id, h.queue, h.key, h.flow_id from history h
        where h.state in (5, 7) and h.finished_at < p_before order by h.finished_at, h.id
    loop
        exit when gone >= p_limit;
        continue when one.flow_id is not null
            and (exists (select from jobs j where j.flow_id = one.flow_id)
                 or exists (select from history h where h.flow_id = one.flow_id and h.state + 0 = 6));
        perform from history h where h.id = one.id and h.state + 0 in (5, 7) for update skip locked;
        continue when not found;
        continue when holds(one.id) > 0;
        delete from history h where h.id = one.id;
        perform forget(one.id, one.queue, one.key, one.flow_id);
        gone := gone + 1;
    end loop;
    delete from groups g using (select x.queue, x.grp from groups x where x.waiting = 0 and x.inflight = 0
                                limit 1000 for update skip locked) as y
    where g.queue = y.queue and g.grp = y.grp;
    return gone;
end
$body$;
