-- The state of a job in the contract's words, at a time.
create or replace function state_of(p_state integer, p_run_at bigint, p_wake bigint, p_now bigint)
returns text language sql immutable as $body$
    select case when p_state in (@scheduled@, @queued@) then case when p_run_at > p_now then 'scheduled' else 'ready' end
                when p_state in (@leased@, @expired@) then case when p_wake > p_now then 'inflight' else 'ready' end
                when p_state = @blocked@ then 'blocked' when p_state = @done@ then 'done'
                when p_state = @cancelled@ then 'cancelled' else 'dlq' end;
$body$;
