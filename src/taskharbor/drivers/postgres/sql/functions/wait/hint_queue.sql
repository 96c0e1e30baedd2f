-- Send a hint for one queue, for the driver to call (a queue was resumed).
create or replace function hint_queue(p_queue text)
returns void language sql set search_path = @schema@, pg_temp set jit = off as $body$
    select hint(array[p_queue], false);
$body$;
