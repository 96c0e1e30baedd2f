-- Reserve up to p_limit runnable jobs from several queues, in fair shares.
-- in:  p_queues JSON array; p_now; p_expires, the end of the leases; p_worker; p_tokens: one for each job, joined by
--      commas, made by the client; p_scan_from: null, or what an earlier call returned: start the scans there (reserve.py);
--      p_durable: whether the claim is flushed to disk as an ack is. Without it a crash of the server can undo the last
--      claims, and with them the fence: the next worker gets a delivery number that was given out before
-- out: the reserved jobs; sorted by token they are in the order of the queue. Last, if many dead index entries were read,
--      a row with nothing but scan_from: the next p_scan_from
-- locks: jobs and groups that no other call has locked (skip locked). It waits only for other reserves of a queue with
--      groups, and for the counters of groups into which it promotes
-- Each queue is read by itself through one index, so the cost grows with p_limit and with nothing else.
create or replace function reserve_queues(p_queues text, p_now bigint, p_expires bigint, p_limit integer, p_worker text,
                                          p_tokens text, p_scan_from text, p_durable boolean)
returns setof reserved_job language plpgsql @ours@ @one_plan@ @in_index_order@ @nested_loops@ as $body$
declare
    tokens constant text[] := string_to_array(p_tokens, ',');
    given constant jsonb := coalesce(p_scan_from::jsonb, '{}');
    scan jsonb;
    names text[];
    full_shares text[] := '{}';  -- queues that gave all they were asked for, and may have more
    taken text[] := '{}';
    ids text[];
    one text;
    left_over integer := p_limit;
    share integer;
begin
    if current_setting('transaction_isolation') <> 'read committed' then perform refuse_isolation(); end if;
    if not p_durable then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    names := in_turn(p_queues);
    if names is null then
        return;
    end if;
    scan := line_up(names, p_now, given);
    for n in reverse cardinality(names)..1 loop  -- n queues are left to share what is left
        one := names[cardinality(names) - n + 1];
        share := (left_over + n - 1) / n;
        continue when share < 1;
        select t.ids, t.scan into ids, scan from take_measured(one, p_now, share, scan) as t;
        if cardinality(ids) = share then
            full_shares := full_shares || one;
        end if;
        taken := taken || ids;
        left_over := left_over - cardinality(ids);
        if cardinality(names) > 1 and cardinality(ids) > 0 then
            update queues q set served = nextval('arrival')
            where q.queue = any(array(select x.queue from queues x where x.queue = one for update skip locked));
        end if;
    end loop;
    if taken <> '{}' then
        return query select * from lease(taken, p_now, p_expires, p_worker, tokens);
    end if;
    -- Fair shares are not caps: what is unused goes to the queues that still have work.
    foreach one in array full_shares loop
        exit when left_over < 1;
        ids := take(one, p_now, left_over, start_of(scan, one));
        return query select * from lease(ids, p_now, p_expires, p_worker, tokens[p_limit - left_over + 1:]);
        left_over := left_over - cardinality(ids);
    end loop;
    if scan <> given then
        return next scan_start(scan);
    end if;
end
$body$;
