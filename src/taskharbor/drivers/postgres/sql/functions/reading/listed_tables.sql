-- The parts of the tables in which a listing looks, each as `table r where condition`: each is in an index in the order
-- of ids.
-- in: as p_wanted of list_ids; p_held: null, or the ids of all jobs that have a lease
-- Records in an unknown state are few, and may be anything: they are in an index of their own, and always looked at.
create or replace function listed_tables(w jsonb, p_held text[])
returns text[] language plpgsql immutable as $body$
declare
    jobs_part text;
    history_part text;
begin
    if w ? 'flow_id' then
        jobs_part := format('r.flow_id = %L', w ->> 'flow_id');
        history_part := jobs_part;
    elsif w ->> 'state' = 'blocked' and w ? 'queue' then
        jobs_part := format('r.state = @blocked@ and r.queue = %L', w ->> 'queue');
    elsif p_held is not null then
        jobs_part := format('r.id = any(%L::text[])', p_held);
    elsif w ->> 'state' in ('blocked', 'scheduled', 'ready', 'inflight') then
        jobs_part := 'true';
    elsif w ->> 'state' = 'done' then
        history_part := 'true';
    elsif w ->> 'state' = 'dlq' and w ? 'queue' then
        history_part := format('r.state = @dead@ and r.queue = %L', w ->> 'queue');
    elsif w ->> 'state' = 'dlq' then
        history_part := 'r.state = @dead@';
    elsif w ->> 'state' = 'cancelled' then
        history_part := 'r.state = @cancelled@';
    else
        jobs_part := 'true';
        history_part := 'true';
    end if;
    return array_remove(array[
        'jobs r where ' || jobs_part,
        'history r where ' || history_part,
        case when jobs_part is null or jobs_part <> 'true' and not w ? 'flow_id'
             then 'jobs r where (r.state < @blocked@ or r.state > @expired@)' end,
        case when history_part is null or history_part <> 'true' and not w ? 'flow_id'
             then 'history r where (r.state < @done@ or r.state > @cancelled@)' end], null);
end
$body$;
