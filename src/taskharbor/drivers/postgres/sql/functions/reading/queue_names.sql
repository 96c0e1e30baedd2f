-- The names of the queues that hold a job, in order.
-- PostgreSQL has no scan that skips from one name to the next, so each name is looked up behind the one before, in every
-- index that begins with the queue. Together these hold every job, but those in an unknown state, of which there are few.
create or replace function queue_names()
returns setof text language plpgsql stable @ours@ @one_plan@ @in_index_order@ as $body$
declare
    strange text[] := array(select j.queue from jobs j where j.state < @blocked@ or j.state > @expired@);
    here text collate "C" := '';
begin
    loop
        here := (select min(x.queue collate "C") from (
            (select j.queue from jobs j where j.queue > here and j.state in (@queued@, @expired@) and j.grp is null
             order by j.queue limit 1)
            union all
            (select j.queue from jobs j where j.queue > here and j.state in (@queued@, @expired@) and j.grp is not null
             order by j.queue limit 1)
            union all
            (select j.queue from jobs j where j.queue > here and j.state = @scheduled@ order by j.queue limit 1)
            union all
            (select j.queue from jobs j where j.queue > here and j.state = @leased@ order by j.queue limit 1)
            union all
            (select j.queue from jobs j where j.queue > here and j.state = @blocked@ order by j.queue limit 1)
            union all
            (select h.queue from history h where h.queue > here order by h.queue limit 1)
            union all
            (select s from unnest(strange) as s where s > here collate "C" order by s collate "C" limit 1)) as x);
        exit when here is null;
        return next here;
    end loop;
end
$body$;
