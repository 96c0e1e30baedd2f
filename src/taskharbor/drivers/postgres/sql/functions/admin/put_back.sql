-- Store a finished job anew: blocked by its open dependencies, or in the line.
-- in: its record, locked; the time; null, or when it shall run; whether attempts are set to 0; its sequence number
create or replace function put_back(j jobs, p_now bigint, p_run_at bigint, p_reset boolean, p_seq bigint)
returns void language plpgsql as $body$
begin
    delete from history x where x.id = j.id;
    delete from jobs x where x.id = j.id;
    j.reason := null;
    j.finished_at := null;
    j.lost := 0;
    j.run_at := p_run_at;
    j.token := null;
    j.lost_by := null;
    j.note := null;
    j.open := 0;
    if p_reset then
        j.attempts := 0;
    end if;
    if j.depends_on is not null then
        insert into edges (dependency, dependent)
        select distinct r.id, j.id from records r where r.id = any(j.depends_on) and r.id <> j.id
        on conflict do nothing;
        j.open := (select count(*) from edges e where e.dependent = j.id
                   and not exists (select from history h where h.id = e.dependency and h.state + 0 = @done@));
    end if;
    j.wake := coalesce(p_run_at, 0);
    j.due := greatest(coalesce(p_run_at, 0), p_now);
    j.seq := p_seq;
    j.state := case when j.open > 0 then @blocked@ else first_state(j.grp, p_run_at, p_now) end;
    insert into jobs select (j).*;
end
$body$;
