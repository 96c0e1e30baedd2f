-- A waiting record as it joins the line again: at the later of its run_at and now, behind what is there.
create or replace function rejoined(j jobs, p_now bigint, p_seq bigint)
returns jobs language plpgsql immutable as $body$
begin
    j.state := first_state(j.grp, j.run_at, p_now);
    j.wake := coalesce(j.run_at, 0);
    j.due := greatest(coalesce(j.run_at, 0), p_now);
    j.seq := p_seq;
    return j;
end
$body$;
