-- After reserve_queue found fewer jobs than asked for, and there are more in the line: take these.
-- A job can be left because it is damaged, because another call has it locked, or because it was claimed and released
-- while the line was read. The last one was then at another ctid, so its token was given to no job: the tokens that are
-- left are not simply those after the first `p_number`.
create or replace function reserve_rest(p_queue text, p_now bigint, p_expires bigint, p_limit integer, p_worker text,
                                        p_tokens text[], p_number integer)
returns setof reserved_job language plpgsql as $body$
declare
    tokens text[] := p_tokens;
begin
    if p_number > 0 then
        tokens := array(
            select x.t from (select unnest(p_tokens) collate "C" as t except
                             select j.token from jobs j
                             where j.queue = p_queue and j.state = @leased@ and j.wake = p_expires) as x
            order by x.t);
    end if;
    return query select * from lease(take_ungrouped(p_queue, p_now, p_limit - p_number), p_now, p_expires, p_worker, tokens);
end
$body$;
