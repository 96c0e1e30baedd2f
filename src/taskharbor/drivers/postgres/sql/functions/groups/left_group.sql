-- The change for a counted job that leaves its group (is settled, cancelled, deleted, …). `p_state` is its state before.
create or replace function left_group(p_queue text, p_grp text, p_state integer)
returns group_change language sql immutable as $body$
    select case when p_state in (@queued@, @expired@) then row(p_queue, p_grp, 0, -1)::group_change
                else row(p_queue, p_grp, -1, 0)::group_change end;
$body$;
