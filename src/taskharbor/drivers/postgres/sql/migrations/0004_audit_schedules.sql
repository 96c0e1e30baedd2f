-- The audit and the schedules. Programs of numbers 2 and 3 go on: none of their statements names these tables.

-- Who did what, for 90 days.
create table audit (
    id text collate "C" primary key,
    at bigint not null,  -- microseconds since 1970
    done_by text collate "C" not null,
    data bytea not null
);
create index audit_at on audit (at, id);

-- Schedules: from `next_at` on (microseconds since 1970) one is due. `revision` differs with each version of a row; a row
-- whose revision is empty stands for none, and only inside a call of change_schedules (see lock_schedules).
-- Beside one row every index looks alike to a planner, which may then search a whole one for a name. The two that are not
-- for that hold an expression, and only the statements that are meant for them use it.
create table schedules (
    name text collate "C" primary key,
    queue text collate "C" not null,
    revision text collate "C" not null,
    next_at bigint,
    body bytea not null
);
create index schedules_due on schedules (queue, next_at, (name || ''));
create index schedules_queue on schedules (queue, (name || ''));

-- A role that may use the tables of an older schema may use the new ones.
do $body$
declare
    one record;
begin
    for one in
        select distinct a.privilege_type as privilege, r.rolname as name
        from pg_class c cross join aclexplode(c.relacl) as a left join pg_roles r on r.oid = a.grantee
        where c.oid = 'group_limits'::regclass and a.grantee <> c.relowner
    loop
        execute format('grant %s on audit, schedules to %s', one.privilege,
                       case when one.name is null then 'public' else quote_ident(one.name) end);
    end loop;
end
$body$;
