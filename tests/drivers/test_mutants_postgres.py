"""Deliberate mistakes in the SQL of the Postgres driver: the contract's cases notice each of them.

A mutant names functions, a piece of their text, what replaces it, and the themes of the suite that must notice. A text
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
    name: str
    functions: str
    old: str
    new: str
    themes: tuple[str, ...]


SETTLES = "ack finish retry_jobs"
FENCE = 'and y.token = i.token collate "C" and y.state in (@leased@, @expired@) and y.wake > p_now'
LINE = "order by j.priority desc, j.due, j.seq"
LINES = "reserve_queue take_ungrouped"
LEFT = "row(p_queue, p_grp, -1, 0)"
CHANGE = "change_schedules"
SCHEDULES, PAGES = ("schedules",), ("schedule_pages",)
MUTANTS = (
    Mutant("a result of jobs that are not done", "result_of", "here.state = @done@ and ", "", ("settle",)),
    Mutant("the result of the job itself, not of its heir", "result_of", "here.handed_to is null", "true", ("spawn",)),
    Mutant("token check dropped", SETTLES, FENCE, FENCE.replace('y.token = i.token collate "C" and ', ""), ("fence",)),
    Mutant("settled after expiry", SETTLES, FENCE, FENCE.replace(" and y.wake > p_now", ""), ("lease",)),
    Mutant("expiry compared with <", SETTLES, FENCE, FENCE.replace("wake >", "wake >="), ("lease",)),
    Mutant("extended with any token", "extend", 'and y.token = i.token collate "C" ', "", ("lease", "fence")),
    Mutant(
        "a lease may shrink",
        "extend",
        "set wake = greatest(j.wake, p_until), due = greatest(j.wake, p_until)",
        "set wake = p_until, due = p_until",
        ("notes",),
    ),
    Mutant("runnable a millisecond late", "promote_scheduled", "x.wake <= p_now", "x.wake < p_now", ("run_at",)),
    Mutant("leases end a millisecond late", "promote_expired", "x.wake <= p_now", "x.wake < p_now", ("lease",)),
    Mutant(
        "lost leases not counted",
        "lease reserve_queue",
        "lost = j.lost + case when j.state = @expired@ then 1 else 0 end,",
        "lost = j.lost,",
        ("lost",),
    ),
    Mutant(
        "deliveries not counted",
        "lease reserve_queue",
        "deliveries = j.deliveries + 1",
        "deliveries = j.deliveries",
        ("reserve",),
    ),
    Mutant("priority the wrong way round", LINES, LINE, "order by j.priority, j.due, j.seq", ("order",)),
    Mutant("arrival forgotten", LINES, LINE, "order by j.priority desc, j.due, j.id desc", ("order",)),
    Mutant("time forgotten", LINES, LINE, "order by j.priority desc, j.seq", ("order",)),
    Mutant(
        "pause ignored",
        "in_turn",
        "not exists (select from queues q",
        "true or exists (select from queues q",
        ("pause",),
    ),
    Mutant("pause of several ignored", "in_turn", "where not coalesce(q.paused, false)", "where true", ("pause",)),
    Mutant(
        "group limit ignored",
        "admit",
        "inflight = g.inflight + cardinality(sound)",
        "inflight = g.inflight",
        ("groups",),
    ),
    Mutant("capacity not freed at expiry", "promote_expired", "up.grp, -1, 1)", "up.grp, 0, 1)", ("group_capacity",)),
    Mutant("capacity not freed", "left_group", LEFT, LEFT.replace("-1", "0"), ("group_capacity", "groups")),
    Mutant("capacity freed twice", "left_group", LEFT, LEFT.replace("-1", "-2"), ("group_capacity", "groups")),
    Mutant(
        "capacity not freed by release",
        "release",
        "if changes is not null then",
        "if false then",
        ("group_capacity",),
    ),
    Mutant("limits never applied", "regroup", "lim = excluded.lim", "lim = g.lim", ("groups",)),
    Mutant("dependents not released", "ack settle", "exists (select from edges)", "false", ("flows",)),
    Mutant("dependents released too early", "release_dependents", "where f.open <= 0", "where true", ("flows",)),
    Mutant(
        "repeats not remembered",
        "refusals",
        "is not true then @already_applied@",
        "is not true and false then @already_applied@",
        ("repeat",),
    ),
    Mutant("repeats of any kind", "refusals", "and coalesce(j.settled_as, h.settled_as) = g.was", "", ("repeat",)),
    Mutant(
        "done ids stored again", "enqueue_one", "if is_late then", "if false then", ("enqueue", "idempotency", "repeat")
    ),
    Mutant(
        "keys of any queue",
        "claim_keys",
        "on conflict do nothing;\n        select coalesce",
        "on conflict do nothing;\n        delete from keys;\n        select coalesce",
        ("idempotency",),
    ),
    Mutant("a key outlives its record", "forget", "and z.key = x.key and z.id = x.id", "and false", ("idempotency",)),
    Mutant(
        "stored into a cancelled flow",
        "cancel_in_cancelled_flows",
        "if cancelled <> '{}' then",
        "if false then",
        ("flow_status",),
    ),
    Mutant("unknown dependencies taken", "link", "where n.new is null limit 1", "where false limit 1", ("flows",)),
    Mutant("prune takes what is needed", "prune_flow", " and not has_dependents(h.id)", "", ("retention",)),
    Mutant(
        "prune takes what is open",
        "prune_sweep",
        "if here.flow = '' or not is_held(here.flow) then",
        "if true then",
        ("retention", "flow_status"),
    ),
    Mutant("prune takes what a dead job holds", "is_held", "h.state + 0 = @dead@", "false", ("retention",)),
    Mutant(
        "prune takes the moment itself",
        "prune_flow",
        "h.finished_at < p_before",
        "h.finished_at <= p_before",
        ("retention",),
    ),
    Mutant("delete takes what is needed", "delete_jobs", "if needed > 0 then", "if false then", ("admin",)),
    Mutant(
        "cancel frees no capacity",
        "cancel",
        "if j.grp is not null and j.state > @scheduled@ then",
        "if false then",
        ("group_capacity",),
    ),
    Mutant("release takes the jobs of all", "release", "worker = p_worker", "worker is not null", ("release",)),
    Mutant("release takes what is kept", "release", "and j.token <> all(kept)", "", ("release",)),
    Mutant("damaged records handed out", LINES, "is_sound(j) as sound", "true as sound", ("damaged",)),
    Mutant(
        "handed over to no job",
        "hand_over",
        "update history h set handed_to = p_new where h.id = p_old;",
        "",
        ("spawn",),
    ),
    Mutant("begin not noted", "lease reserve_queue", " began_at = p_now,", "", ("attempts",)),
    Mutant(
        "a lost execution not reported",
        "lease reserve_queue",
        "lost_by = case when j.state = @expired@ then loss_of(j, j.wake) else j.lost_by end",
        "lost_by = j.lost_by",
        ("attempts",),
    ),
    Mutant("a released execution not reported", "release", "loss_of(j, p_now)", "null", ("attempts",)),
    Mutant("a loss outlives a requeue", "put_back", "    j.lost_by := null;\n", "", ("attempts",)),
    Mutant("done jobs forget their worker", "ack", "x.stored, x.worker,", "x.stored, null,", ("attempts",)),
    Mutant("settled jobs forget their begin", "finish", "x.worker, x.began_at,", "x.worker, null,", ("attempts",)),
    Mutant("done jobs forget their trail", "ack", "x.trail,\n", "null,\n", ("attempts",)),
    Mutant(
        "an empty trail replaces one",
        "finish",
        "coalesce(decode(x.g_trail, 'base64'), x.trail)",
        "decode(x.g_trail, 'base64')",
        ("attempts",),
    ),
    Mutant(
        "an empty trail of a retry replaces one",
        "retry_jobs",
        "coalesce(decode(g.trail, 'base64'), j.trail)",
        "decode(g.trail, 'base64')",
        ("attempts",),
    ),
    Mutant(
        "a retry empties the error's class",
        "retry_jobs",
        "coalesce(g.error_class, j.error_class)",
        "g.error_class",
        ("attempts",),
    ),
    Mutant(
        "a failure keeps the fingerprint before",
        "finish",
        "case when x.kind = @fail@ then x.g_fingerprint else x.fingerprint end",
        "coalesce(x.g_fingerprint, x.fingerprint)",
        ("attempts",),
    ),
    Mutant("a requeue keeps the note", "put_back", "    j.note := null;\n", "", ("notes",)),
    Mutant("no note on a longer lease", "extend", " or i.note is not null", "", ("notes",)),
    Mutant(
        "notes are not stored",
        "extend",
        "note = coalesce(decode(g.note, 'base64'), j.note)",
        "note = j.note",
        ("notes",),
    ),
    Mutant("keep_for not stored", "insert_jobs", "g.metadata, g.keep_for,", "g.metadata, null,", ("keep_for",)),
    Mutant("kept jobs pruned like others", "prune_flow flow_after", "h.keep_for is null and ", "", ("keep_for",)),
    Mutant("pruned at the moment itself", "prune_kept", "< p_kept_before", "<= p_kept_before", ("keep_for",)),
    Mutant("prune takes what is needed and kept", "prune_kept", " and not has_dependents(h.id)", "", ("keep_for",)),
    Mutant(
        "prune takes what is kept and open",
        "prune_kept",
        "and (h.flow_id is null or not is_held(h.flow_id))",
        "",
        ("keep_for",),
    ),
    Mutant("done jobs amended", "amend", "when j.state = @done@ then 'done'", "when false then ''", ("amend",)),
    Mutant("amended after a reservation", "amend", "coalesce(j.deliveries, 0), 0) <>", "0, 0) >", ("amend",)),
    Mutant("amended twice", "amend", "coalesce(j.edits, 0), 0) <>", "0, 0) >", ("amend",)),
    Mutant("an amended job keeps its arrival", "amend", "    j.seq := base + n;\n", "", ("amend",)),
    Mutant(
        "an amended job keeps its turn",
        "amend",
        "    j.due := greatest(coalesce(j.run_at, 0), p_now);\n",
        "",
        ("amend",),
    ),
    Mutant("an amended job stays in line", "amend", "    j.wake := coalesce(j.run_at, 0);\n", "", ("amend",)),
    Mutant("groups do not wait", "oldest_in_line", "j.grp = n.grp", "false", ("heads",)),
    Mutant("an ended lease does not wait", "oldest_in_queue", "j.state = @leased@", "j.state = -1", ("heads",)),
    Mutant("what no reserve counted does not wait", "oldest_in_queue", "j.wake = 0", "j.wake = -1", ("heads",)),
    Mutant("one priority waits", "oldest_in_line", "j.priority < l.priority", "false", ("heads",)),
    Mutant("what is due is not next", "next_in_queue", "j.state = @scheduled@", "j.state = -1", ("heads",)),
    Mutant("the old limit is next", "groups_in_turn", "coalesce(l.lim, g.lim, 1)", "coalesce(g.lim, 1)", ("heads",)),
    Mutant("upcoming without leases", "upcoming", "j.state = @leased@", "j.state = -1", ("upcoming",)),
    Mutant("upcoming without scheduled jobs", "upcoming", "j.state = @scheduled@", "j.state = -1", ("upcoming",)),
    Mutant("upcoming is now", "upcoming", "j.wake > p_now", "j.wake >= p_now", ("upcoming",)),
    Mutant(
        "a name of an error is a pattern",
        "list_filters",
        "right(r.error_class, %s) = %L'",
        "%s > 1 and r.error_class like ''%%'' || %L'",
        ("filters",),
    ),
    Mutant("an error has both names", "list_filters", "' or right(", "' and right(", ("filters",)),
    Mutant("until is included", "list_filters", "else '<' end", "else '<=' end", ("filters",)),
    Mutant(
        "a cursor downwards goes up",
        "list_ids",
        "when p_newest then '< ' else '> ' end",
        "when true then '> ' end",
        ("filters",),
    ),
    Mutant("a page that is cut is the last", "list_ids", "into stopped;", "into part;", ("filters",)),
    Mutant(
        "the end of done jobs is not their time",
        "list_filters",
        "then r.finished_at end",
        "then null end",
        ("filters",),
    ),
    Mutant("cancelled jobs are not listed", "listed_tables", "'r.state = @cancelled@'", "'r.state = -1'", ("filters",)),
    Mutant("done jobs are not counted", "count_jobs", "array[@done@,", "array[-1,", ("filters",)),
    Mutant("blocked jobs are not counted", "count_jobs", "j.state = @blocked@", "j.state = -1", ("filters",)),
    Mutant("a dead job does not fail its flow", "status_of_flow", "h.state + 0 = @dead@", "false", ("flow_listing",)),
    Mutant(
        "a cancelled job does not cancel its flow",
        "status_of_flow",
        "h.state + 0 = @cancelled@",
        "false",
        ("flow_listing",),
    ),
    Mutant("an open flow has succeeded", "status_of_flow", "return 'running'", "return 'succeeded'", ("flow_listing",)),
    Mutant(
        "flows of unfinished jobs alone",
        "next_flow",
        "from history h where",
        "from history h where false and",
        ("flow_listing",),
    ),
    Mutant("since is not compared", "list_flows", "made[1] >= p_since", "true", ("flow_listing",)),
    Mutant(
        "a page of flows has no cursor",
        "list_flows",
        "null::bigint, shown;",
        "null::bigint, null::text;",
        ("flow_listing",),
    ),
    Mutant("figures replace figures", "add_figures", "f.n::numeric + excluded.n", "excluded.n::numeric", ("figures",)),
    Mutant("requeued whatever was seen", "requeue", "elsif p_seen is not null and", "elsif false and", ("seen",)),
    Mutant("cancelled whatever was seen", "cancel", "if is_changed then", "if false then", ("seen",)),
    Mutant("deleted whatever was seen", "delete_jobs", "if p_seen is not null and", "if false and", ("seen",)),
    Mutant("an ended job is as it was seen", "cancel", "when is_changed then 'changed' ", "", ("seen",)),
    Mutant("a waiting job is as it was seen", "requeue", "then 'changed'\n", "then null\n", ("seen",)),
    Mutant("edits are not seen", "seen_of", "coalesce(p_edits, 0)", "0", ("seen",)),
    Mutant("deliveries are not seen", "seen_of", "coalesce(p_deliveries, 0)", "0", ("seen",)),
    Mutant("an end is not seen", "seen_of", "then p_finished::text", "then '-'", ("seen",)),
    Mutant("an entry keeps its time", "put_audit", "set at = excluded.at, ", "set ", ("audit",)),
    Mutant("an entry keeps its data", "put_audit", ", data = excluded.data", "", ("audit",)),
    Mutant("old entries stay", "put_audit", "where x.at < p_oldest", "where false", ("audit",)),
    Mutant("entries go at 90 days", "put_audit", "where x.at < p_oldest", "where x.at <= p_oldest", ("audit",)),
    Mutant("since is left out of the audit", "list_audit", "x.at >= p_since", "x.at > p_since", ("audit",)),
    Mutant("the last entry again", "list_audit", "(x.at, x.id) <", "(x.at, x.id) <=", ("audit",)),
    Mutant("entries in the order of time", "list_audit", "x.at desc, x.id desc", "x.at, x.id", ("audit",)),
    Mutant("the first id of a moment first", "list_audit", "x.at desc, x.id desc", "x.at desc, x.id", ("audit",)),
    Mutant("entries of everyone", "list_audit", "if p_by is null or a.done_by = p_by then", "if true then", ("audit",)),
    Mutant("a full page of the audit is the last", "list_audit", "if has_more or", "if", ("audit",)),
    Mutant("a cut page of the audit is the last", "list_audit", "has_more or looked = p_most", "has_more", ("audit",)),
    Mutant("a schedule of any revision is changed", CHANGE, "is distinct from one.expect", "<> ''", SCHEDULES),
    Mutant("a change that was made is refused", CHANGE, " or current_revision = one.revision then", " then", SCHEDULES),
    Mutant(
        "what is gone cannot be deleted",
        CHANGE,
        "(current_revision is null and one.revision is null) or ",
        "",
        SCHEDULES,
    ),
    Mutant("changes from last to first", CHANGE, "order by g.o", "order by g.o desc", SCHEDULES),
    Mutant(
        "a schedule keeps its moment",
        CHANGE,
        "next_at = one.next_at,",
        "next_at = coalesce(s.next_at, one.next_at),",
        SCHEDULES,
    ),
    Mutant(
        "a schedule never moves",
        CHANGE,
        "coalesce(one.queue, '')",
        "coalesce(nullif(s.queue, ''), one.queue, '')",
        SCHEDULES,
    ),
    Mutant(
        "a body is kept",
        CHANGE,
        "coalesce(one.body, '')",
        "coalesce(nullif(encode(s.body, 'base64'), ''), one.body, '')",
        SCHEDULES,
    ),
    Mutant(
        "a schedule that is there is not locked",
        "lock_schedules",
        "do update set revision = s.revision where false",
        "do nothing",
        ("races",),
    ),
    Mutant("schedules fire without a job", CHANGE, "if p_jobs is not null and", "if false and", ("schedule_jobs",)),
    Mutant(
        "a refused change stores its jobs",
        "store_scheduled",
        "where c.n - 1 = any(p_changed)",
        "where true",
        ("schedule_jobs",),
    ),
    Mutant(
        "only the first job of a change",
        "store_scheduled",
        "where c.n - 1 = any(p_changed)",
        "where c.n - 1 = any(p_changed) and j.n = 1",
        ("schedule_jobs",),
    ),
    Mutant(
        "the last change says what a job is",
        "store_scheduled",
        "order by j.job ->> 'id', c.n, j.n",
        "order by j.job ->> 'id', c.n desc, j.n desc",
        ("schedule_jobs",),
    ),
    Mutant("due only after its moment", "due_schedules", "s.next_at <= p_now", "s.next_at < p_now", PAGES),
    Mutant("what is due comes next", "due_schedules", "s.next_at > p_now", "s.next_at >= p_now", PAGES),
    Mutant("the last queue comes next", "due_schedules", "min(x.next_at)", "max(x.next_at)", PAGES),
    Mutant("the last due one again", "due_schedules", "name || '') > (p_at", "name || '') >= (p_at", PAGES),
    Mutant(
        "a page of due ones skips a moment",
        "due_schedules",
        "(s.next_at, s.name || '') > (p_at, p_name)",
        "s.next_at > p_at",
        PAGES,
    ),
    Mutant(
        "due ones in the order of moments alone",
        "due_schedules",
        "order by x.next_at, x.name",
        "order by x.next_at, x.name desc",
        PAGES,
    ),
    Mutant(
        "due ones queue by queue",
        "due_schedules",
        "order by x.next_at, x.name",
        "order by x.queue, x.next_at, x.name",
        PAGES,
    ),
    Mutant("due ones of any queue", "due_schedules", "where s.queue = q.one and (s", "where (s", PAGES),
    Mutant("the last schedule again", "list_schedules", "where s.name > p_after", "where s.name >= p_after", PAGES),
    Mutant("the last of a queue again", "list_schedules", "s.name || '' > p_after", "s.name || '' >= p_after", PAGES),
    Mutant("schedules of any queue", "list_schedules", "s.queue = p_queue and s.name", "s.name", PAGES),
    Mutant("names in any queue", "list_schedules", "(p_queue is null or s.queue = p_queue)", "true", PAGES),
    Mutant("names from the first one on", "list_schedules", "and s.name > p_after\n", "\n", PAGES),
    Mutant(
        "schedules from the last name on",
        "list_schedules",
        "order by s.name limit",
        "order by s.name desc limit",
        PAGES,
    ),
    Mutant("old figures stay", "add_figures", "where x.minute < p_oldest", "where false", ("figures",)),
)


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
        assert judged(mutant.themes).failed, f"survived: {mutant.name}"
    finally:
        install(texts)


@pytest.mark.left_to("full", except_for=lanes.Chosen("fence"))
@pytest.mark.parametrize("theme", sorted({theme for mutant in MUTANTS for theme in mutant.themes}))
def test_without_a_mistake_they_pass(theme):
    """That all cases pass is what conformance-postgres says: here it is that they do in this place."""
    report = judged([theme])
    assert report.ok, str(report)
