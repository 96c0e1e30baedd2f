-- In a caller's transaction with an older snapshot, a job that finished since is invisible; the index of ids has it.
-- Inserting the id raises a serialization failure then, as it would for a row of the caller's own, instead of storing a
-- done job again.
create or replace function refuse_unseen(p_ids text[])
returns void language plpgsql as $body$
begin
    insert into history (id, queue, state) select i, '', @blocked@ from unnest(p_ids) as i on conflict do nothing;
    delete from history h where h.id = any(p_ids) and h.state + 0 = @blocked@;
end
$body$;
