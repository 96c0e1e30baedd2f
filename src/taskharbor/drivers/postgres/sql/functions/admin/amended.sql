-- A record with the changes of amend.
create or replace function amended(j jobs, c jsonb)
returns jobs language plpgsql immutable as $body$
begin
    if c ? 'payload' then
        j.payload := decode(c ->> 'payload', 'base64');
    end if;
    if c ? 'run_at' then
        j.run_at := (c ->> 'run_at')::bigint;
    end if;
    if c ? 'priority' then
        j.priority := (c ->> 'priority')::integer;
    end if;
    if c ? 'max_attempts' then
        j.max_attempts := (c ->> 'max_attempts')::integer;
    end if;
    if c ? 'timeout' then
        j.timeout := (c ->> 'timeout')::bigint;
    end if;
    if c ? 'metadata' then
        j.metadata := c ->> 'metadata';
    end if;
    j.edits := least(greatest(coalesce(j.edits, 0), 0), 2147483646) + 1;
    return j;
end
$body$;
