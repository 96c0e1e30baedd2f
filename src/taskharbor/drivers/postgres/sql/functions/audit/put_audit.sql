-- Store entries of the audit, each in place of the one with its id, and forget some of those from before p_oldest.
-- in: JSON array of id, at, done_by, data (base64), each id once
-- locks: these entries, in the order of ids; old ones that no other call has locked
create or replace function put_audit(p_entries text, p_oldest bigint)
returns void language plpgsql @ours@ as $body$
begin
    if current_setting('transaction_isolation') <> 'read committed' then perform refuse_isolation(); end if;
    insert into audit as a (id, at, done_by, data)
    select g.id, g.at, g.done_by, decode(g.data, 'base64')
    from json_to_recordset(p_entries::json) as g(id text, at bigint, done_by text, data text)
    order by g.id collate "C"
    on conflict (id) do update set at = excluded.at, done_by = excluded.done_by, data = excluded.data;
    delete from audit a where a.ctid = any(array(
        select x.ctid from audit x where x.at < p_oldest order by x.at, x.id limit 1000 for update skip locked));
end
$body$;
