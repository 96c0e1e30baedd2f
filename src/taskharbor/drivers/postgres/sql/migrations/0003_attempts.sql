-- What is known of a job's executions, changes of stored jobs, retention for single jobs, and figures by minute.
-- Programs of number 2 go on: none of their statements names what is new here.
--
-- worker       the worker of the newest reservation: from this number on it stays when the lease is over, as `ran_on`
-- began_at     when that reservation was made
-- lost_by      null, or a JSON array: the last delivery that was lost, its worker, when it began, when it ended. It counts
--              only for the delivery that follows: so nothing but a requeue has to clear it, and no older program
-- trail, note, error_class, fingerprint, edits, keep_for: as in JobRecord; null for what is empty or 0

-- Calls wait behind this one until it has the tables: not for as long as an application's transaction may stay open.
set local lock_timeout = '5s';
lock table jobs, history, limits in access exclusive mode;
set local lock_timeout = 0;

alter table jobs
    add column began_at bigint,
    add column lost_by text,
    add column trail bytea,
    add column error_class text collate "C",
    add column fingerprint text collate "C",
    add column note bytea,
    add column edits integer,
    add column keep_for bigint;
alter table history
    add column began_at bigint,
    add column lost_by text,
    add column trail bytea,
    add column error_class text collate "C",
    add column fingerprint text collate "C",
    add column note bytea,
    add column edits integer,
    add column keep_for bigint;
create or replace view records as select * from jobs union all select * from history;

-- For listings and counts. Plain jobs are in none of those with a condition on their way from enqueue to done.
create index jobs_blocked on jobs (queue, id) where state = 0;
create index history_dead_ids on history (id) where state = 6;
create index history_cancelled on history (id) where state = 7;
create index history_strange on history (id) where state < 5 or state > 7;
create index history_cancelled_flow on history (coalesce(flow_id, '')) where state + 0 = 7 and flow_id is not null;
-- For counts and names of queues, and what a prune scans: the first index holds what has no keep_for, the others the rest.
-- `history_sweep` is for programs of number 2 alone: it is dropped once none may use the schema. No value of a damaged
-- record may overflow in an index.
create index history_queue on history (queue, state, coalesce(flow_id, ''), finished_at, id) where keep_for is null;
create index history_kept_queue on history (queue, state) where keep_for is not null;
create index history_kept on history ((finished_at + least(greatest(keep_for, 0), 315360000000000)), id)
    where state in (5, 7) and keep_for is not null;

-- One row each: after which record the next prune starts, of those without and with a keep_for.
create table prune_place (
    one boolean primary key default true check (one),
    queue text collate "C" not null,
    state smallint not null,
    flow text collate "C" not null,
    finished_at bigint not null,
    id text collate "C" not null
);
create table kept_place (
    one boolean primary key default true check (one),
    ends bigint not null,
    id text collate "C" not null
);

-- What happened in which minute (microseconds since 1970), by queue and name.
create table figures (
    minute bigint not null,
    queue text collate "C" not null,
    name text collate "C" not null,
    n bigint not null,
    primary key (minute, queue, name)
);

-- `limits` gets a name that says what it limits; older programs go on through the view.
alter table limits rename to group_limits;
create view limits as select queue, grp, lim, applied from group_limits;

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
        execute format('grant %s on limits, figures, prune_place, kept_place to %s', one.privilege,
                       case when one.name is null then 'public' else quote_ident(one.name) end);
    end loop;
end
$body$;
