"""Deliberate mistakes in the SQL of the Postgres driver: the contract's cases notice each of them.

A mutant names the themes of the suite that must notice, functions, a piece of their text, and what replaces it. A text
that is no longer there fails the test: rewrite the mutant together with the function.
"""

import asyncio
import functools
from typing import NamedTuple

import psycopg
import pytest

from taskharbor.conformance import run
from taskharbor.drivers.postgres import PostgresDriver, schema
from tests import lanes
from tests.drivers.test_conformance_postgres import damage
from tests.servers import postgres

pytestmark = pytest.mark.lane("mutants-postgres")


class Mutant(NamedTuple):
    themes: str  # of the cases that must notice
    name: str
    functions: str
    old: str
    new: str


SETTLES = "ack finish retry_jobs"
FENCE = 'and y.token = i.token collate "C" and y.state in (@leased@, @expired@) and y.wake > p_now'
LINE = "order by j.priority desc, j.due, j.seq"
LINES = "reserve_queue take_ungrouped"
SCHEDULED = "x.wake <= p_now and (x.wake <= 0 or"
OVER = "x.wake <= p_now and x.wake >"
LEFT = "row(p_queue, p_grp, -1, 0)"
CHANGE = "change_schedules"
# fmt: off
MUTANTS = (
    Mutant("settle", "a result of jobs that are not done", "result_of", "here.state = @done@ and ", ""),
    Mutant("spawn", "the result of the job itself, not of its heir", "result_of", "here.handed_to is null", "true"),
    Mutant("fence", "token check dropped", SETTLES, FENCE, FENCE.replace('y.token = i.token collate "C" and ', "")),
    Mutant("lease", "settled after expiry", SETTLES, FENCE, FENCE.replace(" and y.wake > p_now", "")),
    Mutant("lease", "expiry compared with <", SETTLES, FENCE, FENCE.replace("wake >", "wake >=")),
    Mutant("lease fence", "extended with any token", "extend", 'and y.token = i.token collate "C" ', ""),
    Mutant("notes", "a lease may shrink", "extend",
           "set wake = greatest(j.wake, p_until), due = greatest(j.wake, p_until)",
           "set wake = p_until, due = p_until"),
    Mutant("run_at", "runnable a millisecond late", "promote", SCHEDULED, SCHEDULED.replace("<= p_now", "< p_now")),
    Mutant("lease", "leases end a millisecond late", "promote", OVER, OVER.replace("<= p_now", "< p_now")),
    Mutant("lost", "lost leases not counted", "lease reserve_queue",
           "lost = j.lost + case when j.state = @expired@ then 1 else 0 end,", "lost = j.lost,"),
    Mutant("reserve", "deliveries not counted", "lease reserve_queue",
           "deliveries = j.deliveries + 1", "deliveries = j.deliveries"),
    Mutant("order", "priority the wrong way round", LINES, LINE, "order by j.priority, j.due, j.seq"),
    Mutant("order", "arrival forgotten", LINES, LINE, "order by j.priority desc, j.due, j.id desc"),
    Mutant("order", "time forgotten", LINES, LINE, "order by j.priority desc, j.seq"),
    Mutant("pause", "pause ignored", "in_turn",
           "not exists (select from queues q", "true or exists (select from queues q"),
    Mutant("pause", "pause of several ignored", "in_turn", "where not coalesce(q.paused, false)", "where true"),
    Mutant("groups", "group limit ignored", "admit",
           "inflight = g.inflight + cardinality(sound)", "inflight = g.inflight"),
    Mutant("group_capacity", "capacity not freed at expiry", "promote", "up.grp, -1, 1)", "up.grp, 0, 1)"),
    Mutant("group_capacity groups", "capacity not freed", "left_group", LEFT, LEFT.replace("-1", "0")),
    Mutant("group_capacity groups", "capacity freed twice", "left_group", LEFT, LEFT.replace("-1", "-2")),
    Mutant("group_capacity", "capacity not freed by release", "release",
           "if changes is not null then", "if false then"),
    Mutant("groups", "limits never applied", "regroup", "lim = excluded.lim", "lim = g.lim"),
    Mutant("flows", "dependents not released", "ack settle", "exists (select from edges)", "false"),
    Mutant("flows", "dependents released too early", "release_dependents", "where f.open <= 0", "where true"),
    Mutant("repeat", "repeats not remembered", "refusals",
           "is not true then @already_applied@", "is not true and false then @already_applied@"),
    Mutant("repeat", "repeats of any kind", "refusals", "and coalesce(j.settled_as, h.settled_as) = g.was", ""),
    Mutant("enqueue idempotency repeat", "done ids stored again", "enqueue_one", "if is_late then", "if false then"),
    Mutant("idempotency", "keys of any queue", "claim_keys",
           "on conflict do nothing;\n        select coalesce",
           "on conflict do nothing;\n        delete from keys;\n        select coalesce"),
    Mutant("idempotency", "a key outlives its record", "forget", "and z.key = x.key and z.id = x.id", "and false"),
    Mutant("flow_status", "stored into a cancelled flow", "cancel_in_cancelled_flows",
           "if cancelled <> '{}' then", "if false then"),
    Mutant("cascade", "a handler's cancel takes nothing along", "settle",
           "if finished.stopped is not null then", "if false then"),
    Mutant("cascade", "what is left does not follow", "follow",
           "select unnest(ahead) on", "select unnest(ahead[0:0]) on"),
    Mutant("cascade", "what waits for a cancelled heir stays blocked", "hand_over",
           "if stopped_flow is not null then", "if false then"),
    Mutant("cascade", "it comes back behind a cancelled job", "is_cancelled_with",
           "and not exists", "and true or exists"),
    Mutant("flows", "unknown dependencies taken", "link", "where n.new is null limit 1", "where false limit 1"),
    Mutant("retention", "prune takes what is needed", "delete_ended", " and count_dependents(h.id, 1) = 0", ""),
    Mutant("retention flow_status", "prune takes what is open", "prune_ended",
           "where is_held(f.flow)", "where false"),
    Mutant("retention", "prune takes what a dead job holds", "is_held", "h.state + 0 = @dead@", "false"),
    Mutant("retention", "prune takes the moment itself", "prune_ended delete_ended",
           "0) < p_before", "0) <= p_before"),
    Mutant("admin", "delete takes what is needed", "delete_jobs", "if needed > 0 then", "if false then"),
    Mutant("group_capacity", "cancel frees no capacity", "cancel",
           "if j.grp is not null and j.state > @scheduled@ then", "if false then"),
    Mutant("release", "release takes the jobs of all", "release", "worker = p_worker", "worker is not null"),
    Mutant("release", "release takes what is kept", "release", "and j.token <> all(kept)", ""),
    Mutant("damaged", "damaged records handed out", LINES, "is_sound(j) as sound", "true as sound"),
    Mutant("spawn", "handed over to no job", "hand_over",
           "update history h set handed_to = heir where h.id = p_old;", ""),
    Mutant("attempts", "begin not noted", "lease reserve_queue", " began_at = p_now,", ""),
    Mutant("attempts", "a lost execution not reported", "lease reserve_queue",
           "lost_by = case when j.state = @expired@ then loss_of(j, j.wake) else j.lost_by end", "lost_by = j.lost_by"),
    Mutant("attempts", "a released execution not reported", "release", "loss_of(j, p_now)", "null"),
    Mutant("attempts", "a loss outlives a requeue", "put_back", "    j.lost_by := null;\n", ""),
    Mutant("attempts", "done jobs forget their worker", "ack", "x.stored, x.worker,", "x.stored, null,"),
    Mutant("attempts", "settled jobs forget their begin", "finish", "x.worker, x.began_at,", "x.worker, null,"),
    Mutant("attempts", "done jobs forget their trail", "ack", "x.trail,\n", "null,\n"),
    Mutant("attempts", "an empty trail replaces one", "finish",
           "coalesce(decode(x.g_trail, 'base64'), x.trail)", "decode(x.g_trail, 'base64')"),
    Mutant("attempts", "an empty trail of a retry replaces one", "retry_jobs",
           "coalesce(decode(g.trail, 'base64'), j.trail)", "decode(g.trail, 'base64')"),
    Mutant("attempts", "a retry empties the error's class", "retry_jobs",
           "coalesce(g.error_class, j.error_class)", "g.error_class"),
    Mutant("attempts", "a failure keeps the fingerprint before", "finish",
           "case when x.kind = @fail@ then x.g_fingerprint else x.fingerprint end",
           "coalesce(x.g_fingerprint, x.fingerprint)"),
    Mutant("notes", "a requeue keeps the note", "put_back", "    j.note := null;\n", ""),
    Mutant("notes", "no note on a longer lease", "extend", " or i.note is not null", ""),
    Mutant("notes", "notes are not stored", "extend",
           "note = coalesce(decode(g.note, 'base64'), j.note)", "note = j.note"),
    Mutant("keep_for", "keep_for not stored", "insert_jobs", "g.metadata, g.keep_for,", "g.metadata, null,"),
    Mutant("keep_for", "kept jobs pruned like others", "prune",
           "prune_ended(0, p_kept_before", "prune_ended(0, p_before"),
    Mutant("keep_for", "prune takes what is kept for good", "prune_ended delete_ended",
           "coalesce(least(greatest(h.keep_for, 0), 315360000000000), 0)", "0"),
    Mutant("keep_for", "pruned at the moment itself", "prune_ended delete_ended", "0) < p_before", "0) <= p_before"),
    Mutant("keep_for", "prune takes what is needed and kept", "delete_ended",
           " and count_dependents(h.id, 1) = 0", ""),
    Mutant("keep_for", "prune takes what is kept and open", "prune_ended", "where is_held(f.flow)", "where false"),
    Mutant("amend", "done jobs amended", "amend", "when j.state = @done@ then 'done'", "when false then ''"),
    Mutant("amend", "amended after a reservation", "amend", "coalesce(j.deliveries, 0), 0) <>", "0, 0) >"),
    Mutant("amend", "amended twice", "amend", "coalesce(j.edits, 0), 0) <>", "0, 0) >"),
    Mutant("amend", "an amended job keeps its arrival", "amend", "    j.seq := base + n;\n", ""),
    Mutant("amend", "an amended job keeps its turn", "amend",
           "    j.due := greatest(coalesce(j.run_at, 0), p_now);\n", ""),
    Mutant("amend", "an amended job stays in line", "amend", "    j.wake := coalesce(j.run_at, 0);\n", ""),
    Mutant("steps", "a step under any token", "save_step", "y.token = p_token and ", ""),
    Mutant("steps", "a step of a lease that is over", "save_step", " and y.wake > p_now", ""),
    Mutant("steps", "a new payload keeps the steps", "amend", "if c ? 'payload' and j.memos then", "if false then"),
    Mutant("steps", "the end forgets the steps", "ack", "x.memos, x.token, @ack@", "null, x.token, @ack@"),
    Mutant("heads", "groups do not wait", "oldest_in_line", "j.grp = n.grp", "false"),
    Mutant("heads", "an ended lease does not wait", "oldest_in_queue", "j.state = @leased@", "j.state = -1"),
    Mutant("heads", "what no reserve counted does not wait", "oldest_in_queue", "j.wake = 0", "j.wake = -1"),
    Mutant("heads", "one priority waits", "oldest_in_line", "j.priority < l.priority", "false"),
    Mutant("heads", "what is due is not next", "next_in_queue", "j.state = @scheduled@", "j.state = -1"),
    Mutant("heads", "the old limit is next", "groups_in_turn", "coalesce(l.lim, g.lim, 1)", "coalesce(g.lim, 1)"),
    Mutant("upcoming", "upcoming without leases", "upcoming", "j.state = @leased@", "j.state = -1"),
    Mutant("upcoming", "upcoming without scheduled jobs", "upcoming", "j.state = @scheduled@", "j.state = -1"),
    Mutant("upcoming", "upcoming is now", "upcoming", "j.wake > p_now", "j.wake >= p_now"),
    Mutant("filters", "a name of an error is a pattern", "list_filters",
           "right(r.error_class, %s) = %L'", "%s > 1 and r.error_class like ''%%'' || %L'"),
    Mutant("filters", "an error has both names", "list_filters", "' or right(", "' and right("),
    Mutant("filters", "until is included", "list_filters", "else '<' end", "else '<=' end"),
    Mutant("filters", "a cursor downwards goes up", "list_ids",
           "when p_newest then '< ' else '> ' end", "when true then '> ' end"),
    Mutant("filters", "a page that is cut is the last", "list_ids", "into stopped;", "into part;"),
    Mutant("filters", "the end of done jobs is not their time", "list_filters",
           "then r.finished_at end", "then null end"),
    Mutant("filters", "cancelled jobs are not listed", "listed_tables", "'r.state = @cancelled@'", "'r.state = -1'"),
    Mutant("filters", "done jobs are not counted", "count_jobs", "array[@done@,", "array[-1,"),
    Mutant("filters", "blocked jobs are not counted", "count_jobs", "j.state = @blocked@", "j.state = -1"),
    Mutant("flow_listing", "a dead job does not fail its flow", "status_of_flow", "h.state + 0 = @dead@", "false"),
    Mutant("flow_listing", "a cancelled job does not cancel its flow", "status_of_flow",
           "h.state + 0 = @cancelled@", "false"),
    Mutant("flow_listing", "an open flow has succeeded", "status_of_flow", "return 'running'", "return 'succeeded'"),
    Mutant("flow_listing", "flows of unfinished jobs alone", "next_flow",
           "from records r", "from jobs r"),
    Mutant("flow_listing", "since is not compared", "list_flows", "made[1] >= p_since", "true"),
    Mutant("flow_listing", "a page of flows has no cursor", "list_flows",
           "null::bigint, shown;", "null::bigint, null::text;"),
    Mutant("figures", "figures replace figures", "add_figures", "f.n::numeric + excluded.n", "excluded.n::numeric"),
    Mutant("seen", "requeued whatever was seen", "requeue", "elsif p_seen is not null and", "elsif false and"),
    Mutant("seen", "cancelled whatever was seen", "cancel", "if p_seen is not null and", "if false and"),
    Mutant("seen", "deleted whatever was seen", "delete_jobs", "if p_seen is not null and", "if false and"),
    Mutant("seen", "an ended job is as it was seen", "cancel", "when is_changed then 'changed' ", ""),
    Mutant("seen", "a waiting job is as it was seen", "requeue", "then 'changed'\n", "then null\n"),
    Mutant("seen", "edits are not seen", "seen_of", "coalesce(p_edits, 0)", "0"),
    Mutant("seen", "deliveries are not seen", "seen_of", "coalesce(p_deliveries, 0)", "0"),
    Mutant("seen", "an end is not seen", "seen_of", "then p_finished::text", "then '-'"),
    Mutant("audit", "an entry keeps its time", "put_audit", "set at = excluded.at, ", "set "),
    Mutant("audit", "an entry keeps its data", "put_audit", ", data = excluded.data", ""),
    Mutant("audit", "old entries stay", "put_audit", "where x.at < p_oldest", "where false"),
    Mutant("audit", "entries go at 90 days", "put_audit", "where x.at < p_oldest", "where x.at <= p_oldest"),
    Mutant("audit", "since is left out of the audit", "list_audit", "x.at >= p_since", "x.at > p_since"),
    Mutant("audit", "the last entry again", "list_audit", "(x.at, x.id) <", "(x.at, x.id) <="),
    Mutant("audit", "entries in the order of time", "list_audit", "x.at desc, x.id desc", "x.at, x.id"),
    Mutant("audit", "the first id of a moment first", "list_audit", "x.at desc, x.id desc", "x.at desc, x.id"),
    Mutant("audit", "entries of everyone", "list_audit", "if p_by is null or a.done_by = p_by then", "if true then"),
    Mutant("audit", "a full page of the audit is the last", "list_audit", "if has_more or", "if"),
    Mutant("audit", "a cut page of the audit is the last", "list_audit", "has_more or looked = p_most", "has_more"),
    Mutant("schedules", "a schedule of any revision is changed", CHANGE, "is distinct from one.expect", "<> ''"),
    Mutant("schedules", "a change that was made is refused", CHANGE,
           " or current_revision = one.revision then", " then"),
    Mutant("schedules", "what is gone cannot be deleted", CHANGE,
           "(current_revision is null and one.revision is null) or ", ""),
    Mutant("schedules", "changes from last to first", CHANGE, "order by g.o", "order by g.o desc"),
    Mutant("schedules", "a schedule keeps its moment", CHANGE,
           "next_at = one.next_at,", "next_at = coalesce(s.next_at, one.next_at),"),
    Mutant("schedules", "a schedule never moves", CHANGE,
           "coalesce(one.queue, '')", "coalesce(nullif(s.queue, ''), one.queue, '')"),
    Mutant("schedules", "a body is kept", CHANGE,
           "coalesce(one.body, '')", "coalesce(nullif(encode(s.body, 'base64'), ''), one.body, '')"),
    Mutant("races", "a schedule that is there is not locked", CHANGE,
           "do update set revision = s.revision where false", "do nothing"),
    Mutant("schedule_jobs", "schedules fire without a job", CHANGE, "if p_jobs is not null and", "if false and"),
    Mutant("schedule_jobs", "a refused change stores its jobs", "store_scheduled",
           "where c.n - 1 = any(p_changed)", "where true"),
    Mutant("schedule_jobs", "only the first job of a change", "store_scheduled",
           "where c.n - 1 = any(p_changed)", "where c.n - 1 = any(p_changed) and j.n = 1"),
    Mutant("schedule_jobs", "the last change says what a job is", "store_scheduled",
           "order by j.job ->> 'id', c.n, j.n", "order by j.job ->> 'id', c.n desc, j.n desc"),
    Mutant("schedule_pages", "due only after its moment", "due_schedules", "s.next_at <= p_now", "s.next_at < p_now"),
    Mutant("schedule_pages", "what is due comes next", "due_schedules", "s.next_at > p_now", "s.next_at >= p_now"),
    Mutant("schedule_pages", "the last queue comes next", "due_schedules", "min(x.next_at)", "max(x.next_at)"),
    Mutant("schedule_pages", "the last due one again", "due_schedules", "name || '') > (p_at", "name || '') >= (p_at"),
    Mutant("schedule_pages", "a page of due ones skips a moment", "due_schedules",
           "(s.next_at, s.name || '') > (p_at, p_name)", "s.next_at > p_at"),
    Mutant("schedule_pages", "due ones in the order of moments alone", "due_schedules",
           "order by x.next_at, x.name", "order by x.next_at, x.name desc"),
    Mutant("schedule_pages", "due ones queue by queue", "due_schedules",
           "order by x.next_at, x.name", "order by x.queue, x.next_at, x.name"),
    Mutant("schedule_pages", "due ones of any queue", "due_schedules", "where s.queue = q.one and (s", "where (s"),
    Mutant("schedule_pages", "the last schedule again", "list_schedules",
           "where s.name > p_after", "where s.name >= p_after"),
    Mutant("schedule_pages", "the last of a queue again", "list_schedules",
           "s.name || '' > p_after", "s.name || '' >= p_after"),
    Mutant("schedule_pages", "schedules of any queue", "list_schedules", "s.queue = p_queue and s.name", "s.name"),
    Mutant("schedule_pages", "names in any queue", "list_schedules", "(p_queue is null or s.queue = p_queue)", "true"),
    Mutant("schedule_pages", "names from the first one on", "list_schedules", "and s.name > p_after\n", "\n"),
    Mutant("schedule_pages", "schedules from the last name on", "list_schedules",
           "order by s.name limit", "order by s.name desc limit"),
    Mutant("figures", "old figures stay", "add_figures", "where x.minute < p_oldest", "where false"),
)
# fmt: on


@functools.cache
def database() -> str:
    return postgres.shared().database()


def address() -> str:
    return postgres.shared().address(database())


def sources(functions: str) -> list[str]:
    files = dict(schema.sources("functions"))
    return [files[f"{name}.sql"] for name in functions.split()]


def install(texts: list[str]) -> None:
    with psycopg.connect(address()) as connection:
        connection.execute("set local search_path = taskharbor, pg_temp")
        for text in texts:
            connection.execute(schema.versioned(text).replace("@schema@", "taskharbor").encode())


def judged(themes):
    postgres.empty(address())

    def hook(driver, id, how):
        return damage(address(), id, how)

    return run(lambda: PostgresDriver(address()), themes=themes, damage=hook, stop_at_first=True)


@pytest.fixture(autouse=True)
def _made():
    async def made():
        driver = PostgresDriver(address())
        await driver.open()
        await driver.close()

    asyncio.run(made())


# What `make test` makes sure of: the fence, and the promises that lose or double a job when they break.
EACH_TIME = (
    "token check dropped",
    "settled after expiry",
    "extended with any token",
    "lost leases not counted",
    "group limit ignored",
    "dependents released too early",
    "repeats not remembered",
    "done ids stored again",
    "prune takes what is needed",
    "release takes the jobs of all",
    "requeued whatever was seen",
    "a schedule of any revision is changed",
)


@pytest.mark.left_to("full", except_for=lanes.Chosen(*EACH_TIME))
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_cases_notice(mutant):
    texts = sources(mutant.functions)
    for text in texts:
        assert mutant.old in text, f"{mutant.name}: {mutant.old!r} is no longer in one of {mutant.functions}"
    install([text.replace(mutant.old, mutant.new) for text in texts])
    try:
        assert judged(mutant.themes.split()).failed, f"survived: {mutant.name}"
    finally:
        install(texts)


@pytest.mark.left_to("full", except_for=lanes.Chosen("fence"))
@pytest.mark.parametrize("theme", sorted({theme for mutant in MUTANTS for theme in mutant.themes.split()}))
def test_without_a_mistake_they_pass(theme):
    """That all cases pass is what conformance-postgres says: here it is that they do in this place."""
    report = judged([theme])
    assert report.ok, str(report)
