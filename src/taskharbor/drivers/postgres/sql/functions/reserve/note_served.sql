-- Note that a queue was served now, unless another reserve is noting it at this moment.
create or replace function note_served(p_queue text)
returns void language plpgsql as $body$
begin
    update queues q set served = nextval('arrival')
    where q.queue = any(array(select x.queue from queues x where x.queue = p_queue for update skip locked));
end
$body$;
