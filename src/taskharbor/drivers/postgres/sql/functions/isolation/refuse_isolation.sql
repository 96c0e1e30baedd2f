-- Refuse a call that runs in another isolation than read committed (error TH002).
-- A call locks rows and then reads again: it must see what was committed while it waited. In a stricter isolation an ack
-- would miss a job that was made dependent on its own since the snapshot, and that job would stay blocked for ever.
-- The driver receives TH002 and repeats the call in a transaction with an explicit isolation.
-- For enqueueing in the caller's own transaction see refuse_outdated.
create or replace function refuse_isolation()
returns void language plpgsql as $body$
begin
    raise exception using errcode = 'TH002', message = format(
        'expected a transaction in the isolation read committed, got %s', current_setting('transaction_isolation'));
end
$body$;
