-- Store a memo of a job whose lease holds, in place of the one with its name.
-- in:  id and token of the lease; name; value (base64); the time
-- out: nothing, or (code, ends): why the lease does not hold, see refusals
-- locks: the job, for which it waits, then the memo
create or replace function save_step(p_id text, p_token text, p_name text, p_value text, p_now bigint)
returns table (code integer, ends bigint) language plpgsql @ours@ as $body$
#variable_conflict use_column
declare
    held record;
begin
    if current_setting('transaction_isolation') <> 'read committed' then perform refuse_isolation(); end if;
    select y.deliveries, y.memos into held from jobs y
    where y.id = p_id and y.token = p_token and y.state in (@leased@, @expired@) and y.wake > p_now
    for no key update;
    if not found then
        return query select r.code, r.ends
                     from refusals(json_build_array(json_build_object('o', 0, 'id', p_id, 'token', p_token))::text,
                                   p_now, null) as r;
        return;
    end if;
    if held.memos is not true then
        delete from steps s where s.id = p_id;
        update jobs y set memos = true where y.id = p_id;
    end if;
    insert into steps as s (id, name, at, execution, value)
    values (p_id, p_name, p_now, held.deliveries, decode(p_value, 'base64'))
    on conflict (id, name) do update set at = excluded.at, execution = excluded.execution, value = excluded.value;
end
$body$;
