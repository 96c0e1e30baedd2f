-- take, starting where `p_scan` says; if it read many dead index entries, `scan` says where the next call may start.
create or replace function take_measured(p_queue text, p_now bigint, p_limit integer, p_scan jsonb,
                                         out ids text[], out scan jsonb)
language plpgsql as $body$
declare
    read_before constant bigint := index_tuples_read();
begin
    ids := take(p_queue, p_now, p_limit, start_of(p_scan, p_queue));
    scan := p_scan;
    if index_tuples_read() - read_before > 1000 + 10 * p_limit then
        scan := scan || jsonb_build_object('=' || p_queue, coalesce(
            (select jsonb_build_array(j.priority, j.due, j.seq) from jobs j
             where j.id = ids[cardinality(ids)] and j.grp is null),
            jsonb_build_array(0, greatest(p_now - 60000000, 0), 0)));
    end if;
end
$body$;
