-- The fields of a reserved job that few jobs have: null if it has none of them, else a JSON array, bytes in hexadecimal.
create or replace function rare_columns(j jobs)
returns text language sql stable as $body$
    select case when j.key is null and j.grp is null and j.depends_on is null and j.flow_id is null
                     and j.metadata is null and j.last_error is null and j.failed_at is null and j.reason is null
                     and j.handed_to is null and j.finished_at is null and j.result is null and j.group_limit = 0
                     and j.trail is null and j.error_class is null and j.fingerprint is null and j.note is null
                     and j.edits is null and j.keep_for is null and j.memos is null and j.lost_by is null
                then null
                else json_build_array(encode(j.key, 'hex'), j.grp, j.group_limit, j.depends_on, j.flow_id, j.handed_to,
                                      j.metadata, j.last_error, j.failed_at, j.reason, j.finished_at,
                                      encode(j.result, 'hex'), encode(j.trail, 'hex'), j.error_class, j.fingerprint,
                                      encode(j.note, 'hex'), j.edits, j.keep_for, j.memos, j.lost_by)::text end;
$body$;
