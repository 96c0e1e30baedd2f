-- The records with these ids, in no order, whatever the planner of the statement around it takes for small.
create or replace function records_of(p_ids text[])
returns setof jobs language plpgsql stable @ours@ @one_plan@ as $body$
begin
    return query select * from jobs j where j.id = any(p_ids);
    return query select * from history h where h.id = any(p_ids);
end
$body$;
