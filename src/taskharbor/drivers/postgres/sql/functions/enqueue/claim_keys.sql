-- Store the idempotency keys of new jobs.
-- in: as p_keys of enqueue; out: the jobs whose key belongs to another job, and for each that job
-- The job's id decides first: the key of a job whose id is stored already does not matter.
create or replace function claim_keys(p_keys text, out ids text[], out known text[])
language plpgsql as $body$
begin
    for turn in 1..20 loop
        insert into keys as k (queue, key, id)
        select distinct on (g.queue, g.key) g.queue, decode(g.key, 'base64'), g.id
        from json_to_recordset(p_keys::json) as g(o integer, id text, queue text, key text)
        where not exists (select from jobs j where j.id = g.id)
          and not exists (select from history h where h.id = g.id)
        order by g.queue, g.key, g.o
        on conflict do nothing;
        select coalesce(array_agg(g.id order by g.o), '{}'), coalesce(array_agg(k.id order by g.o), '{}')
        into ids, known
        from json_to_recordset(p_keys::json) as g(o integer, id text, queue text, key text)
        join keys k on k.queue = g.queue collate "C" and k.key = decode(g.key, 'base64') and k.id <> g.id
        where not exists (select from jobs j where j.id = g.id)
          and not exists (select from history h where h.id = g.id);
        -- A key that was there at the insert and is gone now: its record was deleted in between. Try again.
        exit when not exists (
            select from json_to_recordset(p_keys::json) as g(o integer, id text, queue text, key text)
            where not exists (select from jobs j where j.id = g.id)
              and not exists (select from history h where h.id = g.id)
              and not exists (select from keys k
                              where k.queue = g.queue collate "C" and k.key = decode(g.key, 'base64')));
    end loop;
end
$body$;
