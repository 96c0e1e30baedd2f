-- The state of a job in the contract's words, at a time.
create or replace function state_of(p_state integer, p_run_at bigint, p_wake bigint, p_now bigint)
returns text language sql immutable as $body$
    select case p_state when @blocked@ then 'blocked'
                        when @scheduled@ then case when p_run_at > p_now then 'scheduled' else 'ready' end
                        when @queued@ then case when p_run_at > p_now then 'scheduled' else 'ready' end
                        when @leased@ then case when p_wake > p_now then 'inflight' else 'ready' end
                        when @expired@ then case when p_wake > p_now then 'inflight' else 'ready' end
                        when @done@ then 'done' when @dead@ then 'dlq' when @cancelled@ then 'cancelled'
                        else 'dlq' end;
$body$;
