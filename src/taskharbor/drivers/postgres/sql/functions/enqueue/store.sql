-- What enqueue does, with its arguments and its rows. An unknown dependency raises TH001.
-- locks: the flows, shared (see share_flows); new keys and rows, each in their order; dependencies that were stored before
--      (weakly, see last_of), in the order of ids. No group and no queue is locked
-- A call may have ten thousand jobs: arrays are joined (hashed), never searched for each row. `state + 0`, here and in
-- other functions, keeps the planner from looking up an id in a partial index that was small when it was analyzed.
create or replace function store(p_jobs text, p_keys text, p_edges text, p_group_limits text, p_flows text,
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
        perform share_flows(array(select json_array_elements_text(p_flows::json)));
    end if;
    if p_keys is not null then
        select k.ids, k.known into alias_ids, alias_known from claim_keys(p_keys) as k;
    end if;
    fresh := insert_jobs(p_jobs, alias_ids, p_now, base);
    if p_callers and current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_outdated(fresh, p_keys, p_flows);
    end if;
    if cardinality(fresh) + cardinality(alias_ids) < json_array_length(p_jobs::json) then
        if p_keys is not null then  -- of jobs that turned out to be stored already, unless their records have them
            delete from keys k
            using json_to_recordset(p_keys::json) as g(id text, queue text, key text)
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
    if p_group_limits is not null then  -- the first job of the call decides, and a stored limit stays
        insert into group_limits (queue, grp, lim)
        select distinct on (g.queue, g.grp) g.queue, g.grp, g.lim
        from json_to_recordset(p_group_limits::json) as g(o integer, id text, queue text, grp text, lim integer)
        where exists (select from unnest(fresh) as f where f = g.id)
        order by g.queue, g.grp, g.o
        on conflict do nothing;
    end if;
    if p_edges is not null then
        perform link(p_edges, fresh, alias_ids, alias_known, p_now);
    end if;
    if p_flows is not null then
        perform cancel_in_cancelled_flows(p_flows, fresh, p_now);
    end if;
    perform hint(p_queues, p_callers);
end
$body$;
