-- Put the jobs of retries back, each behind what the acks before it released.
-- in:  as settle; the first sequence number; the positions of acks that released a job, one for each released job
-- out: the positions of what was applied, the queues, the changes for groups
create or replace function retry_jobs(p_given text, p_now bigint, p_base bigint, p_released integer[],
                                      out positions integer[], out queues text[], out changes group_change[])
language plpgsql as $body$
begin
    with back as (
        update jobs j
        set state = first_state(j.grp, g.run_at, p_now),
            wake = coalesce(g.run_at, 0), due = greatest(coalesce(g.run_at, 0), p_now),
            seq = p_base + g.o + (select count(*) from unnest(p_released) as r where r < g.o),
            run_at = g.run_at, attempts = g.attempts, last_error = coalesce(g.last_error, j.last_error),
            failed_at = coalesce(g.failed_at, j.failed_at),
            lost = case when g.attempts = j.attempts then j.lost else 0 end,
            error_class = coalesce(g.error_class, j.error_class),
            fingerprint = coalesce(g.fingerprint, j.fingerprint), trail = coalesce(decode(g.trail, 'base64'), j.trail),
            token = null, settled = j.token, settled_as = @retry@
        from (select x.place, x.was, i.*
              from json_to_recordset(p_given::json) as i(o integer, id text, token text, kind smallint,
                                                         run_at bigint, attempts integer, last_error text,
                                                         failed_at bigint, error_class text, fingerprint text,
                                                         trail text),
                   lateral (select y.ctid as place, y.state as was from jobs y where y.id = i.id collate "C" and i.kind = @retry@
                            and y.token = i.token collate "C" and y.state in (@leased@, @expired@) and y.wake > p_now
                            limit 1 for no key update skip locked) as x) as g
        where j.ctid = g.place
        returning j.queue, j.grp, g.was, g.o
    )
    select array_agg(back.o), array_agg(back.queue),
           array_agg(left_group(back.queue, back.grp, back.was)) filter (where back.grp is not null)
    into positions, queues, changes from back;
end
$body$;
