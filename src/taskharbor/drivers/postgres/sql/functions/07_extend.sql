-- Extend leases. in: JSON array of o, id, token (each job once); out: for each (o, code, ends), codes as in settle, and
-- 5: it holds until `ends`. locks: the jobs that nobody else has locked: it waits for none, so that no lease is lost
-- because of another's job
create or replace function extend(p_given text, p_now bigint, p_until bigint)
returns table (o integer, code integer, ends bigint) language plpgsql
set search_path = @schema@, pg_temp set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $body$
#variable_conflict use_column
declare
    group_queues text[];
    group_names text[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation();
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
        perform regroup(group_queues, group_names, array_fill(1, array[cardinality(group_names)]),
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
create or replace function release(p_worker text, p_now bigint, p_keep text, out released integer, out locked integer)
language plpgsql set search_path = @schema@, pg_temp set jit = off set enable_seqscan = off as $body$
declare
    base bigint := nextval('arrival') << 20;
    kept text[] := array(select json_array_elements_text(p_keep::json));
    found_ids text[];
    ids text[];
    held record;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_isolation();
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
        perform regroup(held.group_queues, held.group_names,
                        array(select case when s = 3 then -1 else 0 end from unnest(held.states) as s),
                        array(select case when s = 4 then -1 else 0 end from unnest(held.states) as s));
    end if;
    perform hint(held.told, false);
end
$body$;
