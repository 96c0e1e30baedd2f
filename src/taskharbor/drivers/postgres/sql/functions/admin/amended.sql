-- A record with the changes of amend.
create or replace function amended(j jobs, c jsonb)
returns jobs language plpgsql immutable as $body$
begin
    j.payload := case when c ? 'payload' then decode(c ->> 'payload', 'base64') else j.payload end;
    j.run_at := case when c ? 'run_at' then (c ->> 'run_at')::bigint else j.run_at end;
    j.priority := case when c ? 'priority' then (c ->> 'priority')::integer else j.priority end;
    j.max_attempts := case when c ? 'max_attempts' then (c ->> 'max_attempts')::integer else j.max_attempts end;
    j.timeout := case when c ? 'timeout' then (c ->> 'timeout')::bigint else j.timeout end;
    j.metadata := case when c ? 'metadata' then c ->> 'metadata' else j.metadata end;
    j.edits := least(greatest(coalesce(j.edits, 0), 0), 2147483646) + 1;
    return j;
end
$body$;
