-- Insert the jobs that are not stored yet. A job with dependencies is blocked until link has seen them.
-- in: as p_jobs of enqueue; ids to leave out; the time; the first sequence number; out: the ids of the new jobs
create or replace function insert_jobs(p_jobs text, p_without text[], p_now bigint, p_base bigint)
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
               case when g.depends_on is not null then @blocked@ else first_state(g.grp, g.run_at, p_now) end,
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
