-- Delete the keys that claim_keys stored for jobs that turned out to be stored already, unless their records have them.
create or replace function drop_unused_keys(p_keys text, p_fresh text[])
returns void language plpgsql as $body$
begin
    delete from keys k
    using json_to_recordset(p_keys::json) as g(o integer, id text, queue text, key text)
    where k.queue = g.queue collate "C" and k.key = decode(g.key, 'base64') and k.id = g.id
      and not exists (select from unnest(p_fresh) as f where f = g.id)
      and not exists (select from records r where r.id = g.id and r.queue = k.queue and r.key = k.key);
end
$body$;
