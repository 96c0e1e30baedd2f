-- Delete up to p_limit done and cancelled jobs without a keep_for that finished before p_before. Queue by queue, of each
-- first what is done and then what is cancelled, of each first jobs of no flow, then flow by flow, of each the oldest first.
-- out: how many
-- A flow is checked as a whole: whether an unfinished or dead job holds it is one lookup in each of two indexes, so its
-- size does not matter. What is held back is not checked by every call: each starts where the last one stopped (the table
-- `prune_place`), wraps around at the end, and stops after a few thousand checks whatever it has found.
-- locks: what it deletes, and the row of `prune_place`; what another call has locked is left for the next round
create or replace function prune_sweep(p_before bigint, p_limit integer)
returns integer language plpgsql as $body$
declare
    beginning constant prune_place := (true, '', 0, '', '-9223372036854775808'::bigint, '');
    here prune_place;
    began prune_place;
    is_ours boolean;
    is_wrapped boolean := false;
    checks integer := 5000;  -- left for jobs and flows that are held back
    read_before constant bigint := prune_tuples_read();
    batch record;
    deleted deleted_job[] := '{}';
begin
    select s.* into here from prune_place s for update skip locked;
    is_ours := found;
    if not is_ours then  -- this is the first call of all, or another one has the row locked
        here := beginning;
    end if;
    began := here;
    while cardinality(deleted) < p_limit and checks > 0
          and prune_tuples_read() - read_before < 20000 + 10 * p_limit loop
        if here.flow = '' or not is_held(here.flow) then
            select * into batch from prune_flow(here, p_before, least(p_limit - cardinality(deleted), 500));
            deleted := deleted || batch.deleted;
            checks := checks - batch.number + cardinality(batch.deleted);
            here := batch.here;
            continue when not batch.is_over;
        end if;
        checks := checks - 1;
        here := flow_after(here);
        if here is null then
            here := beginning;
            exit when is_wrapped or began = here;
            is_wrapped := true;
        else
            exit when is_wrapped and (here.queue, here.state, here.flow) > (began.queue, began.state, began.flow);
        end if;
    end loop;
    perform forget(deleted);
    if is_ours then
        update prune_place s
        set queue = here.queue, state = here.state, flow = here.flow, finished_at = here.finished_at, id = here.id
        where here <> began;
    else
        insert into prune_place values (here.*) on conflict do nothing;
    end if;
    delete from groups g where g.ctid = any(array(
        select x.ctid from groups x where x.waiting = 0 and x.inflight = 0 limit 1000 for update skip locked));
    return cardinality(deleted);
end
$body$;
