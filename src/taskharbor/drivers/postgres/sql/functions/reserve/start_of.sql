-- Where the scan of a queue starts, or null: at the head.
-- A scan is a JSON object: '=' and a queue: [priority, due, seq] of the last job to skip; 'due_after': promote only what
-- became due after this time.
create or replace function start_of(p_scan jsonb, p_queue text)
returns bigint[] language sql immutable as $body$
    select case when p_scan ? ('=' || p_queue) then array[(p_scan -> ('=' || p_queue) ->> 0)::bigint,
        (p_scan -> ('=' || p_queue) ->> 1)::bigint, (p_scan -> ('=' || p_queue) ->> 2)::bigint] end;
$body$;
