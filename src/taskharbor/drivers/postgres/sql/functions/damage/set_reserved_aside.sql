-- Move records to the dead letter queue that were reserved and that the driver found to be damaged.
-- in: JSON array of id, token, reason; the time. A job that another worker has reserved since is left to that worker
create or replace function set_reserved_aside(p_given text, p_now bigint)
returns void language plpgsql @ours@ as $body$
declare
    one record;
    j jobs;
begin
    if current_setting('transaction_isolation') <> 'read committed' then perform refuse_isolation(); end if;
    for one in
        select g.id, g.token, g.reason from json_to_recordset(p_given::json) as g(id text, token text, reason text)
    loop
        select x.* into j from jobs x where x.id = one.id and x.token = one.token for update skip locked;
        continue when not found;
        delete from jobs x where x.id = one.id;
        if j.grp is not null then
            perform regroup(array[left_group(j.queue, j.grp, j.state)]);
            perform hint(array[j.queue], false);
        end if;
        j := set_finished(j, @dead@::smallint, 'damaged record: ' || one.reason, p_now);
        insert into history select (j).*;
    end loop;
end
$body$;
