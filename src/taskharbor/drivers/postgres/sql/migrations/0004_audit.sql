-- The audit: who did what, for 90 days. Programs of numbers 2 and 3 go on: none of their statements names this table.

create table audit (
    id text collate "C" primary key,
    at bigint not null,  -- microseconds since 1970
    done_by text collate "C" not null,
    data bytea not null
);
create index audit_at on audit (at, id);

-- A role that may use the tables of an older schema may use the new one.
do $body$
declare
    one record;
begin
    for one in
        select distinct a.privilege_type as privilege, r.rolname as name
        from pg_class c cross join aclexplode(c.relacl) as a left join pg_roles r on r.oid = a.grantee
        where c.oid = 'group_limits'::regclass and a.grantee <> c.relowner
    loop
        execute format('grant %s on audit to %s', one.privilege,
                       case when one.name is null then 'public' else quote_ident(one.name) end);
    end loop;
end
$body$;
