-- The functions of schema number 1 that a program of that number calls for one job: enqueue_one_v1, reserve_v1, ack_v1, and
-- what these call. test_postgres_upgrade.py runs them beside the functions of today. Frozen: they are as they were, except
-- that their comments are left out. The tables are those of the first migration.
create or replace function refuse_isolation_v1()
returns void language plpgsql as $body$
begin
    raise exception using errcode = 'TH002', message = format(
        'expected a transaction in the isolation read committed, got %s', current_setting('transaction_isolation'));
end
$body$;
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
create or replace function hint_v1(p_queues text[], p_gently boolean)
returns void language plpgsql as $body$
begin
    if exists (select from waiting w where w.queue = any(p_queues)) then
        perform ring_v1(p_queues, p_gently);
    end if;
end
$body$;
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
create or replace function refuse_unseen_v1(p_ids text[])
returns void language plpgsql as $body$
begin
    insert into history (id, queue, state) select i, '', 0 from unnest(p_ids) as i on conflict do nothing;
    delete from history h where h.id = any(p_ids) and h.state + 0 = 0;
end
$body$;
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
create or replace function is_sound_v1(j jobs)
returns boolean language sql immutable as $body$
    select j.type <> '' and j.payload is not null and j.attempts >= 0 and j.max_attempts >= 0
           and j.deliveries >= 0 and j.deliveries < 2147483647 and j.lost >= 0 and j.lost < 2147483647
           and j.created_at >= 0 and j.created_at <= 253402300799999999
           and (j.run_at is null or j.run_at >= 0 and j.run_at <= 253402300799999999)
           and (j.timeout is null or j.timeout >= 1000 and j.timeout <= 2147483647000);
$body$;
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
create or replace function steps_v1()
returns bigint language sql as $body$
    select pg_stat_get_xact_tuples_returned('jobs_line'::regclass)
           + pg_stat_get_xact_tuples_returned('jobs_leases'::regclass)
           + pg_stat_get_xact_tuples_returned('jobs_calendar'::regclass);
$body$;
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
                         limit greatest(least(share, n.room - (
                             select count(*) from jobs h where h.queue = p_queue and h.grp = n.grp
                             and h.state in (2, 4) and h.due > p_now and h.wake > p_now and h.token is not null)), 0)
                         for no key update skip locked) as ids
            from unnest(names, rooms) as n(grp, room)
        loop
            if c.ids = '{}' then
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
create or replace function floor_of_v1(p_floors jsonb, p_queue text)
returns bigint[] language sql immutable as $body$
    select case when p_floors ? ('=' || p_queue) then array[(p_floors -> ('=' || p_queue) ->> 0)::bigint,
        (p_floors -> ('=' || p_queue) ->> 1)::bigint, (p_floors -> ('=' || p_queue) ->> 2)::bigint] end;
$body$;
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
