-- Note that a worker is alive, and forget what is not: workers, and waiters that died with their process (living ones
-- renew their rows every minute).
-- out: the oldest transaction of this database that keeps rows alive (it has written, or holds a snapshot), if it has been
--      open for p_old_s seconds: its process, its seconds, its state
create or replace function beat(p_worker text, p_now bigint, p_info text, p_forget bigint, p_old_s integer)
returns table (pid integer, seconds integer, state text) language plpgsql @ours@ as $body$
begin
    insert into workers as w (worker, seen_at, info) values (p_worker, p_now, p_info)
    on conflict (worker) do update set seen_at = excluded.seen_at, info = excluded.info;
    delete from workers w where w.seen_at <= p_forget;
    delete from waiting w where w.said_at < now() - interval '5 minutes';
    return query
        select a.pid, extract(epoch from clock_timestamp() - a.xact_start)::integer, coalesce(a.state, 'unknown')
        from pg_stat_activity a
        where a.datname = current_database() and a.pid <> pg_backend_pid() and a.backend_type = 'client backend'
          and (a.backend_xid is not null or a.backend_xmin is not null)
          and a.xact_start < clock_timestamp() - make_interval(secs => p_old_s)
        order by a.xact_start limit 1;
end
$body$;
