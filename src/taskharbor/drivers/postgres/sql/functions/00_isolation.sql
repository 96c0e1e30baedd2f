-- Calls look again after they have locked: what was stored while they waited must be seen. Only read committed shows
-- it: in a stricter isolation an ack would not see who was made dependent on its job since the snapshot, and that one
-- would wait for ever. So a call refuses (TH002), and the driver begins it again in a transaction that says its isolation.
-- What is stored in the caller's own transaction see refuse_unseen.
create or replace function refuse_isolation()
returns void language plpgsql as $body$
begin
    raise exception using errcode = 'TH002', message = format(
        'expected a transaction in the isolation read committed, got %s', current_setting('transaction_isolation'));
end
$body$;
