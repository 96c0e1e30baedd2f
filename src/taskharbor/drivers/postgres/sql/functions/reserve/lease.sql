-- Put jobs that were taken from their queues under leases.
-- in: their ids, the time, the end of the leases, the worker, and at least one token for each
create or replace function lease(p_ids text[], p_now bigint, p_expires bigint, p_worker text, p_tokens text[])
returns setof reserved_job language plpgsql as $body$
begin
    return query
        update jobs j  -- the same as in reserve_queue
        set state = @leased@, wake = p_expires, due = p_expires, token = t.token,
            worker = p_worker, began_at = p_now, deliveries = j.deliveries + 1,
            lost = j.lost + case when j.state = @expired@ then 1 else 0 end,
            lost_by = case when j.state = @expired@ then loss_of(j, j.wake) else j.lost_by end,
            run_at = case when j.state = @expired@ then null else j.run_at end, settled = null, settled_as = null
        from unnest(p_ids, p_tokens[:cardinality(p_ids)]) as t(id, token)
        where j.id = t.id collate "C"
        returning (as_reserved(j)).*;
end
$body$;
