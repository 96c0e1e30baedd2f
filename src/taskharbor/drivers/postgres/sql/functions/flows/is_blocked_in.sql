-- Whether a job is blocked, and in this flow. What is compared is in no index: a job is looked up by its id.
create or replace function is_blocked_in(j jobs, p_flow text)
returns boolean language sql immutable as $body$
    select j.state + 0 = @blocked@ and j.flow_id || '' = p_flow;
$body$;
