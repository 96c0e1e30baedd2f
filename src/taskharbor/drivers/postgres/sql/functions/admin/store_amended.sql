-- Write what amend may change of a record, which is locked, in whichever table it is.
create or replace function store_amended(j jobs)
returns void language plpgsql as $body$
begin
    update jobs x
    set payload = j.payload, run_at = j.run_at, priority = j.priority, max_attempts = j.max_attempts,
        timeout = j.timeout, metadata = j.metadata, last_error = j.last_error, reason = j.reason, trail = j.trail,
        note = j.note, edits = j.edits, memos = j.memos, state = j.state, wake = j.wake, due = j.due, seq = j.seq
    where x.id = j.id;
    if not found then
        update history x
        set payload = j.payload, run_at = j.run_at, priority = j.priority, max_attempts = j.max_attempts,
            timeout = j.timeout, metadata = j.metadata, last_error = j.last_error, reason = j.reason, trail = j.trail,
            note = j.note, edits = j.edits, memos = j.memos
        where x.id = j.id;
    end if;
end
$body$;
