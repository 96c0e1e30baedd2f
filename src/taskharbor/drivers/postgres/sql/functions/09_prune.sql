-- Retention. A flow is looked at as one: whether an open or a dead job holds it is asked once, through two indexes, so
-- that its size does not matter. What is held back is not looked at by every call: each goes on where the last one ended
-- (the table sweep), begins again at the end, and gives up after some thousand looks whatever it has found.

-- Whether a job of the flow is neither done nor cancelled.
create or replace function is_held(p_flow text)
returns boolean language plpgsql stable as $body$
begin
    return exists (select from jobs j where j.flow_id = p_flow)
           or exists (select from history h where coalesce(h.flow_id, '') = p_flow and h.state + 0 = 6);
end
$body$;

-- How many entries of the indexes that a prune walks this session has read so far, dead ones included.
create or replace function prune_steps()
returns bigint language sql as $body$
    select pg_stat_get_xact_tuples_returned('history_sweep'::regclass)
           + pg_stat_get_xact_tuples_returned('history_held'::regclass)
           + pg_stat_get_xact_tuples_returned('jobs_flow'::regclass);
$body$;

-- Forget up to p_limit done and cancelled jobs that finished before a moment: those of no flow, then flow by flow, of each
-- the oldest first. Answers how many.
-- locks: what it deletes, and the place where the next call begins; what somebody else has locked is left for the next round
create or replace function prune(p_before bigint, p_limit integer)
returns integer language plpgsql
set search_path = @schema@, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
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
    walked constant bigint := prune_steps();
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
        perform refuse_isolation();
    end if;
    select s.* into here from sweep s for update skip locked;
    is_ours := found;
    if not is_ours then  -- the first call of all, or another one has it
        here := (true, '', oldest, '');
    end if;
    began := here;
    while cardinality(gone) < p_limit and looks > 0 and prune_steps() - walked < 20000 + 10 * p_limit loop
        if here.flow <> '' and is_held(here.flow) then
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
                    delete from history h where h.ctid = any(places) and not is_needed(h.id)
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
    perform forget(gone, queues, keys, flows);
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
