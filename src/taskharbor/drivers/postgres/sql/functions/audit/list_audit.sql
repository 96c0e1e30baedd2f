-- A page of the audit, the newest entries first.
-- in:  p_since: the first moment; p_at, p_id: the place behind which the page begins; p_by: null, or whose entries; p_limit;
--      p_most: how many entries are looked at
-- out: a row for each entry; then, if there may be more, one without data: the place behind which the next page begins
-- One index is read in its order, as far as it is needed.
create or replace function list_audit(p_since bigint, p_at bigint, p_id text, p_by text, p_limit integer, p_most integer)
returns table (id text, at bigint, done_by text, data bytea) language plpgsql stable
@ours@ @one_plan@ @in_index_order@ set enable_incremental_sort = off as $body$
#variable_conflict use_column
declare
    looked integer := 0;
    shown integer := 0;
    has_more boolean := false;
    last_id text;
    last_at bigint;
    a audit;
begin
    for a in select x.* from audit x where x.at >= p_since and (x.at, x.id) < (p_at, p_id collate "C")
             order by x.at desc, x.id desc limit p_most loop
        if p_by is null or a.done_by = p_by then
            has_more := shown = p_limit;
            exit when has_more;
            shown := shown + 1;
            return query select a.id, a.at, a.done_by, a.data;
        end if;
        looked := looked + 1;
        last_id := a.id;
        last_at := a.at;
    end loop;
    if has_more or looked = p_most then
        return query select last_id, last_at, null::text, null::bytea;
    end if;
end
$body$;
