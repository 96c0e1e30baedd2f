-- Reserve up to p_limit runnable jobs: the claim.
-- in:  p_queues JSON array; p_now; p_expires, the end of the leases; p_worker; p_tokens, one for each job with a comma
--      between them, made by the client; p_again: the same call was sent before and its reply was lost;
--      p_floors: null, or what an earlier call answered: begin there (see bloat.py)
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
create or replace function promote(p_queues text[], p_now bigint, p_low bigint)
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
        perform set_aside(strange, p_now);
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
        perform regroup(group_queues, group_names, freed, lined);
    end if;
end
$body$;

-- Where groups have something to give, or something is due to be promoted, reserves of a queue come one at a time: else
-- one would find nothing, because the other has promoted it and not yet committed, or half filled its group. A line of
-- ungrouped jobs, the common case, is shared by all. Answers whether there is anything to promote.
create or replace function in_turn(p_queues text[], p_now bigint, p_low bigint)
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
create or replace function take_ungrouped(p_queue text, p_now bigint, p_limit integer)
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
                     case when is_sound(j) then null else 'damaged' end as damage
              from jobs j
              where j.queue = p_queue and j.state in (2, 4) and j.grp is null and j.wake <= p_now
                and (seen = '{}' or j.id <> all(seen))
              order by j.priority desc, j.due, j.seq
              limit p_limit - cardinality(taken)
              for no key update skip locked) as c;
        taken := taken || coalesce(sound, '{}');
        exit when broken is null;
        seen := seen || coalesce(sound, '{}') || broken;
        perform set_aside(broken, p_now);
    end loop;
    return taken;
end
$body$;

-- The same from behind a place in the line (priority, due, seq). What is damaged waits for a look at all of it.
create or replace function take_above(p_queue text, p_now bigint, p_limit integer, p_floor bigint[])
returns text[] language plpgsql as $body$
declare
    taken text[] := array(
        select j.id from jobs j
        where j.queue = p_queue and j.state in (2, 4) and j.grp is null and j.wake <= p_now
          and j.priority = p_floor[1] and (j.due, j.seq) > (p_floor[2], p_floor[3]) and damage_of(j) is null
        order by j.due, j.seq limit p_limit for no key update skip locked);
begin
    if cardinality(taken) < p_limit then
        taken := taken || array(
            select j.id from jobs j
            where j.queue = p_queue and j.state in (2, 4) and j.grp is null and j.wake <= p_now
              and j.priority < p_floor[1] and damage_of(j) is null
            order by j.priority desc, j.due, j.seq limit p_limit - cardinality(taken)
            for no key update skip locked);
    end if;
    return taken;
end
$body$;

-- How many entries of the indexes that a reserve walks this session has read so far, dead ones included.
create or replace function steps()
returns bigint language sql as $body$
    select pg_stat_get_xact_tuples_returned('jobs_line'::regclass)
           + pg_stat_get_xact_tuples_returned('jobs_leases'::regclass)
           + pg_stat_get_xact_tuples_returned('jobs_calendar'::regclass);
$body$;

-- Up to p_more ids, behind those we have, from the lines of the groups of a queue that have room, the group first that
-- was served longest ago. Locks the groups it takes from and moves their counters.
create or replace function take_grouped(p_queue text, p_now bigint, p_more integer, p_have text[])
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
                sound := drop_damaged(p_queue, c.grp, c.ids, p_now);
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
create or replace function drop_damaged(p_queue text, p_group text, p_ids text[], p_now bigint)
returns text[] language plpgsql as $body$
declare
    sound text[];
    broken text[];
    aside integer := 0;
begin
    select coalesce(array_agg(x.id order by x.n) filter (where damage_of(j) is null), '{}'),
           array_agg(x.id) filter (where damage_of(j) is not null)
    into sound, broken
    from unnest(p_ids) with ordinality as x(id, n) join jobs j on j.id = x.id;
    if broken is not null then
        aside := set_aside(broken, p_now);
    end if;
    update groups g
    set waiting = greatest(g.waiting - cardinality(sound) - aside, 0), inflight = g.inflight + cardinality(sound),
        served = nextval('arrival')
    where g.queue = p_queue and g.grp = p_group;
    return sound;
end
$body$;

-- Up to p_limit ids of one queue; grouped and ungrouped jobs take turns.
create or replace function take(p_queue text, p_now bigint, p_limit integer, p_floor bigint[])
returns text[] language plpgsql as $body$
declare
    taken text[];
    more text[];
    first_groups boolean;
begin
    if not exists (select from groups g where g.queue = p_queue and g.waiting > 0 and g.inflight < g.lim) then
        return case when p_floor is null then take_ungrouped(p_queue, p_now, p_limit)
                    else take_above(p_queue, p_now, p_limit, p_floor) end;
    end if;
    select q.groups_next into first_groups from queues q where q.queue = p_queue for update skip locked;
    if not found then  -- another reserve has it
        first_groups := random() < 0.5;
    end if;
    more := take_grouped(p_queue, p_now, (p_limit + case when first_groups then 1 else 0 end) / 2, '{}');
    taken := case when p_floor is null then take_ungrouped(p_queue, p_now, p_limit - cardinality(more))
                  else take_above(p_queue, p_now, p_limit - cardinality(more), p_floor) end;
    if cardinality(more) + cardinality(taken) < p_limit then
        more := take_grouped(p_queue, p_now, p_limit - cardinality(more) - cardinality(taken), more);
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
create or replace function seldom(j jobs)
returns text language sql stable as $body$
    select case when j.key is null and j.grp is null and j.depends_on is null and j.flow_id is null
                     and j.metadata is null and j.last_error is null and j.failed_at is null and j.reason is null
                     and j.handed_to is null and j.finished_at is null and j.result is null and j.group_limit = 0
                then null
                else json_build_array(encode(j.key, 'hex'), j.grp, j.group_limit, j.depends_on, j.flow_id, j.handed_to,
                                      j.metadata, j.last_error, j.failed_at, j.reason, j.finished_at,
                                      encode(j.result, 'hex'))::text end;
$body$;

create or replace function reserve(p_queues text, p_now bigint, p_expires bigint, p_limit integer, p_worker text,
                                   p_tokens text, p_again boolean, p_floors text, p_durable boolean)
returns table (id text, queue text, type text, payload bytea, run_at bigint, timeout bigint, priority integer,
               attempts integer, max_attempts integer, deliveries integer, lost integer, created_at bigint,
               more text, token text)
language plpgsql
set search_path = @schema@, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
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
        perform refuse_isolation();
    end if;
    if not p_durable then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    if floors = '{}' and not p_again and json_array_length(p_queues::json) = 1 then
        -- The common case, in two statements: one queue, of which nothing but the line of the ungrouped is to be seen.
        -- The line is looked at once (materialized), and its rows are found by their places: whatever a planner
        -- believes, it has no other way.
        one := p_queues::json ->> 0;
        walked := steps();
        select exists (select from jobs j where j.queue = one and j.state = 3 and j.wake <= p_now)
               or exists (select from jobs j where j.queue = one and j.state = 1 and j.wake <= p_now)
               or exists (select from groups g where g.queue = one and g.waiting > 0 and g.inflight < g.lim)
               or exists (select from queues q where q.queue = one and q.paused)
               or exists (select from limits l where l.queue = one and not l.applied)
               or exists (select from jobs j where j.state < 0 or j.state > 4)
        into odd;
        if not odd and steps() - walked < 5000 then
            walked := steps();
            return query
                with line as materialized (
                    select j.ctid as place,
                           case when is_sound(j) then null else 'damaged' end as damage
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
                    j.max_attempts, j.deliveries, j.lost, j.created_at, seldom(j), j.token;
            get diagnostics number = row_count;
            if steps() - walked > 1000 + 10 * p_limit then
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
                found_ids := lease(take_ungrouped(one, p_now, p_limit - number), p_expires, p_worker, tokens);
                return query select j.id, j.queue, j.type, j.payload, j.run_at, j.timeout, j.priority, j.attempts,
                    j.max_attempts, j.deliveries, j.lost, j.created_at, seldom(j), j.token
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
                j.max_attempts, j.deliveries, j.lost, j.created_at, seldom(j), j.token
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
    walked := steps();
    if in_turn(sorted, p_now, low) then
        perform promote(sorted, p_now, low);
    end if;
    if steps() - walked > 5000 then
        floors := floors || jsonb_build_object('low', greatest(p_now - 1000000, 0));
        steep := true;
    end if;
    left_over := p_limit;
    for turn in 1..places loop
        one := names[turn];
        quota := (left_over + places - turn) / (places - turn + 1);
        continue when quota < 1;
        walked := steps();
        found_ids := take(one, p_now, quota, floor_of(floors, one));
        if steps() - walked > 1000 + 10 * quota then
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
        taken := lease(taken, p_expires, p_worker, tokens);
        foreach one in array hungry loop
            exit when left_over < 1;
            found_ids := take(one, p_now, left_over, floor_of(floors, one));
            found_ids := lease(found_ids, p_expires, p_worker, tokens[p_limit - left_over + 1:]);
            left_over := left_over - cardinality(found_ids);
            taken := taken || found_ids;
        end loop;
        return query select j.id, j.queue, j.type, j.payload, j.run_at, j.timeout, j.priority, j.attempts,
            j.max_attempts, j.deliveries, j.lost, j.created_at, seldom(j), j.token
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
                j.max_attempts, j.deliveries, j.lost, j.created_at, seldom(j), j.token;
    end if;
    if steep then
        token := floors::text;
        return next;
    end if;
end
$body$;

-- Where to begin in the line of a queue, or null.
create or replace function floor_of(p_floors jsonb, p_queue text)
returns bigint[] language sql immutable as $body$
    select case when p_floors ? ('=' || p_queue) then array[(p_floors -> ('=' || p_queue) ->> 0)::bigint,
        (p_floors -> ('=' || p_queue) ->> 1)::bigint, (p_floors -> ('=' || p_queue) ->> 2)::bigint] end;
$body$;

-- Put jobs that were taken from their lines under leases. Answers their ids.
create or replace function lease(p_ids text[], p_expires bigint, p_worker text, p_tokens text[])
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
