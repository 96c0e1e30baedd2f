-- Whether a job was cancelled because one that it depends on was, and no such job of its flow is cancelled any more.
create or replace function is_cancelled_with(j history)
returns boolean language sql stable as $body$
    select j.state + 0 = @cancelled@ and j.reason = '@with_it@' and not exists (
        select from edges e join history d on d.id = e.dependency
        where e.dependent = j.id and d.state + 0 = @cancelled@ and d.flow_id = j.flow_id);
$body$;
