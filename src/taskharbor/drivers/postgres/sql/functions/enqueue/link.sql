-- Link new jobs to their dependencies, and count those that are not done; a job with none of these joins the line; one
-- behind a cancelled job of its flow is cancelled. An
-- unknown dependency raises TH001.
-- in: p_edges as in enqueue; the ids of the new jobs; jobs whose key belongs to another job, and that job; the time
create or replace function link(p_edges text, p_fresh text[], p_alias text[], p_known text[], p_now bigint)
returns void language plpgsql as $body$
#variable_conflict use_column
declare
    ids text[];
    positions integer[];
    dependencies text[];
    stored text[];  -- dependencies that are not new, ...
    current_ids text[];  -- ... and the job that stands for each: locked, so that it cannot finish unseen
    done text[];  -- of those that were stored before: only they can have ended
    one record;
begin
    select array_agg(e.id), array_agg(e.pos), array_agg(coalesce(a.known, e.dep))
    into ids, positions, dependencies
    from json_to_recordset(p_edges::json) as e(id text, pos integer, dep text)
    left join unnest(p_alias, p_known) as a(id, known) on a.id = e.dep
    join unnest(p_fresh) as f(id) on f.id = e.id;
    if ids is null then
        return;
    end if;
    select array_agg(x.dep), array_agg(last_of(x.dep)) into stored, current_ids
    from (select distinct d as dep from unnest(dependencies) as d
          where not exists (select from unnest(p_fresh) as f(id) where f.id = d) order by 1) as x;
    select e.id, e.dep into one
    from unnest(ids, dependencies) as e(id, dep)
    join unnest(stored, current_ids) as n(old, new) on n.old = e.dep
    where n.new is null limit 1;
    if found then
        raise exception using errcode = 'TH001', message = format(
            'depends_on: %s depends on %s, which is not stored; enqueue it before or in the same call',
            one.id, one.dep);
    end if;
    if stored is not null then
        select array_agg(coalesce(n.new, e.dep) order by e.i) into dependencies
        from unnest(dependencies) with ordinality as e(dep, i)
        left join unnest(stored, current_ids) as n(old, new) on n.old = e.dep;
    end if;
    insert into edges (dependency, dependent)
    select distinct e.dep, e.id from unnest(ids, dependencies) as e(id, dep) on conflict do nothing;
    -- One update for each job, never a join: see ended_as.
    done := ended_as(current_ids, @done@);
    for one in
        select e.id, array_agg(e.dep order by e.pos) as deps, count(distinct e.dep) filter (where d.dep is null) as open
        from unnest(ids, positions, dependencies) as e(id, pos, dep)
        left join unnest(done) as d(dep) on d.dep = e.dep
        group by e.id
    loop
        update jobs j
        set depends_on = one.deps, open = one.open,
            state = case when one.open > 0 then @blocked@ else first_state(j.grp, j.run_at, p_now) end
        where j.id = one.id;
    end loop;
    perform strand(p_fresh, ended_as(current_ids, @cancelled@), p_now);
end
$body$;
