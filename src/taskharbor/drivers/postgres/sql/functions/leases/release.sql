-- Give back the jobs that a worker has under valid leases, except those with some tokens, in the order of their arrival.
-- out: how many were released, and how many more another call has locked: the driver calls again for these
-- locks: the jobs that no other call has locked, then their groups
create or replace function release(p_worker text, p_now bigint, p_keep text, out changed integer, out locked integer)
language plpgsql @ours@ as $body$
declare
    base bigint := nextval('arrival') << 20;
    kept text[] := array(select json_array_elements_text(p_keep::json));
    candidates text[];
    ids text[];
    changes group_change[];
    hinted text[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then perform refuse_isolation(); end if;
    -- Found through the indexes of leased jobs; checked again once they are locked.
    candidates := array(select x.id from jobs x where x.state = @leased@ and x.worker = p_worker
                        union all select x.id from jobs x where x.state = @expired@ and x.worker = p_worker);
    ids := array(select j.id from jobs j
                 where j.id = any(candidates) and j.state in (@leased@, @expired@)
                   and j.worker = p_worker and j.wake > p_now and j.token <> all(kept)
                 for no key update skip locked);
    changed := cardinality(ids);
    locked := (select count(*) from jobs j
               where j.id = any(candidates) and j.state in (@leased@, @expired@)
                 and j.worker = p_worker and j.wake > p_now and j.token <> all(kept)) - changed;
    if ids = '{}' then
        return;
    end if;
    select array_agg(left_group(j.queue, j.grp, j.state)) filter (where j.grp is not null),
           array_agg(distinct j.queue)
    into changes, hinted from jobs j where j.id = any(ids);
    update jobs j
    set state = first_state(j.grp, null, p_now), wake = 0, due = p_now, seq = base + x.n, run_at = null,
        lost = least(j.lost, 2147483646) + 1, token = null, lost_by = loss_of(j, p_now)
    from (select y.id, row_number() over (order by y.seq) as n from jobs y where y.id = any(ids)) as x
    where j.id = x.id;
    if changes is not null then
        perform regroup(changes);
    end if;
    perform hint(hinted, false);
end
$body$;
