-- What a reader has seen of a job, as one text: deliveries, edits, and the end in microseconds, or a dash. Of a damaged
-- record it is what reading shows: see _readable in records.py.
create or replace function seen_of(p_deliveries integer, p_edits integer, p_finished bigint)
returns text language sql immutable as $body$
    select greatest(coalesce(p_deliveries, 0), 0) || ' ' || greatest(coalesce(p_edits, 0), 0) || ' '
           || case when p_finished between 0 and 253402300799999999 then p_finished::text else '-' end;
$body$;
