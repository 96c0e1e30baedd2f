-- Where the scan of a queue starts, or null: at the head.
-- A scan is a JSON object: '=' and a queue: [priority, due, seq] of the last job to skip; 'due_after': promote only what
-- became due after this time.
create or replace function start_of(p_scan jsonb, p_queue text)
returns bigint[] language sql immutable as $body$
    select nullif(array(select n::bigint from jsonb_array_elements_text(p_scan -> ('=' || p_queue)) as n), '{}');
$body$;
