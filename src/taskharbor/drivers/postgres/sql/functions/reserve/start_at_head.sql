-- The place before the first live job in the line of a queue, as start_of reads it; a minute ago if the line is empty.
create or replace function start_at_head(p_queue text, p_now bigint)
returns jsonb language plpgsql as $body$
begin
    return coalesce(
        (select jsonb_build_array(j.priority, j.due, j.seq - 1) from jobs j
         where j.queue = p_queue and j.state in (@queued@, @expired@) and j.grp is null
         order by j.priority desc, j.due, j.seq limit 1),
        jsonb_build_array(0, greatest(p_now - 60000000, 0), 0));
end
$body$;
