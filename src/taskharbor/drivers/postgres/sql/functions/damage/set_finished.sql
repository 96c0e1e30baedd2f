-- A record as it is when something else than an outcome of its worker finishes it.
create or replace function set_finished(j jobs, p_state smallint, p_reason text, p_now bigint)
returns jobs language plpgsql immutable as $body$
begin
    j.state := p_state;
    j.reason := p_reason;
    j.finished_at := p_now;
    j.token := null;
    return j;
end
$body$;
