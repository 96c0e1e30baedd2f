-- The earliest moment after p_now at which a reserve of these queues may return more although nothing is called in
-- between: a run_at, or the end of a lease; null if there is none.
-- in: a JSON array of queues; the time
-- One lookup in each of two indexes for each queue. Then there is what a reserve with a faster clock has brought into the
-- line too early for this one: see early_in_line.
create or replace function upcoming(p_queues text, p_now bigint)
returns bigint language plpgsql stable @ours@ @one_plan@ @in_index_order@ as $body$
declare
    one text;
    earliest bigint;
begin
    for one in select json_array_elements_text(p_queues::json) loop
        earliest := least(
            earliest,
            (select j.wake from jobs j where j.queue = one and j.state = @scheduled@ and j.wake > p_now
             order by j.wake limit 1),
            (select j.wake from jobs j where j.queue = one and j.state = @leased@ and j.wake > p_now
             order by j.wake limit 1),
            early_in_line(one, p_now));
    end loop;
    return earliest;
end
$body$;
