-- Add numbers to those of their minute and queue, and forget what is older than p_oldest: at least twice as many rows as are added.
-- in: JSON array of minute, queue, name, n
-- locks: the rows of these figures, in their order; old ones that no other call has locked
create or replace function add_figures(p_rows text, p_oldest bigint)
returns void language plpgsql @ours@ as $body$
declare
    added bigint;
begin
    if current_setting('transaction_isolation') <> 'read committed' then perform refuse_isolation(); end if;
    insert into figures as f (minute, queue, name, n)
    select g.minute, g.queue, g.name, sum(g.n)
    from json_to_recordset(p_rows::json) as g(minute bigint, queue text, name text, n bigint)
    where g.minute >= p_oldest
    group by g.minute, g.queue, g.name
    order by g.minute, g.queue collate "C", g.name collate "C"
    on conflict (minute, queue, name) do update set n = least(f.n::numeric + excluded.n, 9223372036854775807);
    get diagnostics added = row_count;
    delete from figures f where f.ctid = any(array(
        select x.ctid from figures x where x.minute < p_oldest order by x.minute limit greatest(1000, 2 * added) for update skip locked));
end
$body$;
