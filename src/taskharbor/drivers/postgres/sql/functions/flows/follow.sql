-- What a cancel or a requeue of jobs means for those behind them in their flows. Behind a cancelled job, what is blocked is
-- cancelled too; behind another one, what was cancelled in this way comes back, unless it depends on a cancelled job.
-- in: ids of jobs; the time; how many jobs may follow. out: how many did. Jobs whose dependents are still to follow, because
--     there are more or another call has them locked, go into the table `followed`: a prune goes on with them. What is
--     behind a dependent comes before the next dependents: so these are few
-- locks: the jobs that follow, unless another call has locked them: it never waits; see stays_cancelled
create or replace function follow(p_ids text[], p_now bigint, p_limit integer)
returns integer language plpgsql as $body$
declare
    base constant bigint := nextval('arrival') << 20;
    ahead text[] := p_ids;
    n integer := 0;
    behind text;
    here record;
    dependents text[];
    j jobs;
    is_left boolean;
begin
    while cardinality(ahead) > 0 and n < p_limit loop
        behind := ahead[cardinality(ahead)];
        ahead := trim_array(ahead, 1);
        select r.state, r.flow_id into here from records r where r.id = behind;
        dependents := array(select e.dependent from edges e where e.dependency = behind);
        is_left := false;
        if dependents = '{}' or here.flow_id is null then
            null;
        elsif here.state = @cancelled@ then
            for j in select x.* from jobs x where x.id = any(dependents) and is_blocked_in(x, here.flow_id)
                     order by x.id limit p_limit - n for update skip locked loop
                delete from jobs x where x.id = j.id;
                insert into history select (set_finished(j, @cancelled@::smallint, '@with_it@', p_now)).*;
                ahead := ahead || array(select e.dependency from edges e where e.dependency = j.id limit 1);
                n := n + 1;
            end loop;
            is_left := exists (select from jobs x where x.id = any(dependents) and is_blocked_in(x, here.flow_id));
        else
            for j in select x.* from history x where x.id = any(dependents) and is_cancelled_with(x, here.flow_id)
                     order by x.id limit p_limit - n for update skip locked loop
                continue when not keep_all(j.depends_on);
                n := n + 1;
                perform put_back(j, p_now, j.run_at, false, base + n);
                ahead := ahead || array(select e.dependency from edges e where e.dependency = j.id limit 1);
            end loop;
            for j in select x.* from history x where x.id = any(dependents) and x.state + 0 = @cancelled@
                     and x.reason = '@with_it@' and x.flow_id || '' = here.flow_id loop
                is_left := not stays_cancelled(j.id, here.flow_id);
                exit when is_left;
            end loop;
        end if;
        if is_left then
            insert into followed values (behind) on conflict do nothing;
        end if;
    end loop;
    insert into followed select unnest(ahead) on conflict do nothing;
    return n;
end
$body$;
