-- Whether a blocked job can never run, because a job of its flow that it depends on is cancelled. What is in a cancelled flow
-- is cancelled with that.
create or replace function is_stranded(p_id text)
returns boolean language sql stable as $body$
    select exists (
        select from jobs j join edges e on e.dependent = j.id join history d on d.id = e.dependency
        where j.id = p_id and j.state = @blocked@ and d.state + 0 = @cancelled@ and d.flow_id || '' = j.flow_id
          and not exists (select from flows f where f.flow_id = j.flow_id));
$body$;
