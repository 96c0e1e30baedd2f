-- Keep records from being settled, pruned or deleted until this commits. out: false if another call has one of them locked
create or replace function keep_all(p_ids text[])
returns boolean language plpgsql as $body$
declare
    kept text[];
begin
    if p_ids is null then
        return true;
    end if;
    kept := array(select h.id from history h where h.id = any(p_ids) for key share skip locked);
    kept := kept || array(select j.id from jobs j where j.id = any(p_ids) for key share skip locked);
    -- A new read: what moved from one table to the other meanwhile is in one of them.
    return not exists (select r.id from records r where r.id = any(p_ids) except select unnest(kept) collate "C");
end
$body$;
