-- A text behind every name, which has at most 255 bytes.
create or replace function behind_all()
returns text language sql immutable as $body$
    select repeat(chr(1114111), 64);
$body$;
