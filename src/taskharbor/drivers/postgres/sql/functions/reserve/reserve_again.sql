-- Repeat a reserve whose reply was lost: return what that call reserved, or reserve if it reserved nothing.
-- in and out: as reserve_queues; the tokens are those of the first call
create or replace function reserve_again(p_queues text, p_now bigint, p_expires bigint, p_limit integer, p_worker text,
                                         p_tokens text, p_scan_from text, p_durable boolean)
returns setof reserved_job language plpgsql @ours@ @one_plan@ @in_index_order@ @nested_loops@ as $body$
declare
    ids text[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then perform refuse_isolation(); end if;
    ids := array(
        select j.id from jobs j, json_array_elements_text(p_queues::json) as q
        where j.queue = q and j.state = @leased@ and j.wake = p_expires
          and j.token in (select unnest(string_to_array(p_tokens, ','))));
    if ids <> '{}' then
        return query select (as_reserved(j)).* from jobs j where j.id = any(ids);
    else
        return query select * from reserve_queues(p_queues, p_now, p_expires, p_limit, p_worker, p_tokens, p_scan_from,
                                                  p_durable);
    end if;
end
$body$;
