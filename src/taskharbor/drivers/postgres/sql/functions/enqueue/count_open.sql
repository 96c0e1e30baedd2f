-- Write the dependencies of new jobs, and how many of these are not done; a job with none joins the line.
-- in: edges (job, position, dependency); those dependencies that were stored before (only they can be done); the time
-- One lookup for each dependency and one update for each job, never a join: a planner whose statistics were made when the
-- tables were empty reads the whole table for every edge.
create or replace function count_open(p_ids text[], p_positions integer[], p_dependencies text[], p_stored text[],
                                      p_now bigint)
returns void language plpgsql as $body$
#variable_conflict use_column
declare
    one record;
    done text[] := '{}';
begin
    for one in select distinct n as dep from unnest(p_stored) as n loop
        if exists (select from history h where h.id = one.dep and h.state + 0 = @done@) then
            done := done || one.dep;
        end if;
    end loop;
    for one in
        select e.id, array_agg(e.dep order by e.pos) as deps, count(distinct e.dep) filter (where d.dep is null) as open
        from unnest(p_ids, p_positions, p_dependencies) as e(id, pos, dep)
        left join unnest(done) as d(dep) on d.dep = e.dep
        group by e.id
    loop
        update jobs j
        set depends_on = one.deps, open = one.open,
            state = case when one.open > 0 then @blocked@ else first_state(j.grp, j.run_at, p_now) end
        where j.id = one.id;
    end loop;
end
$body$;
