"""Each deliberate mistake in the SQLite driver, in its SQL or its Python, is noticed by the suite.

The cases of the themes named with a mistake are run on a copy of the driver that has it; the copy without one passes
all of them. A text that is no longer there is an error of its own: say the mistake again in the new words.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from taskharbor.conformance import run
from taskharbor.conformance.machine import check_machine
from taskharbor.drivers import sqlite
from tests import lanes
from tests.architecture.mutants import imported_from
from tests.drivers.sqlite_files import damage, fast_folder

pytestmark = pytest.mark.lane("mutants-sqlite")
fast_sqlite_folder = fast_folder
SOURCE = Path(sqlite.__file__).parent


class Mutant(NamedTuple):
    name: str
    themes: str
    edits: tuple[tuple[str, str, str], ...]  # file, text, what stands there instead
    machine: bool = False


def edit(name: str, themes: str, file: str, text: str, instead: str, *, machine: bool = False) -> Mutant:
    return Mutant(name, themes, ((file, text, instead),), machine)


NO_EDGES = "\n    AND NOT EXISTS (SELECT 1 FROM taskharbor_edges AS edge WHERE edge.dependency = taskharbor_jobs.num)"

MUTANTS = (
    Mutant(
        "token check dropped",
        "fence",
        (
            ("settle.py", "token=job.token", "token=lease.token"),
            ("sql/ack.sql", "AND token = substr(given.value, 1, 32)", ""),
            ("sql/extend.sql", "AND token = ?", "AND ? IS NOT NULL"),
        ),
        machine=True,
    ),
    Mutant(
        "expiry compared with <",
        "lease fence settle",
        (
            ("settle.py", "ends_at = from_us(job.moment) if", "ends_at = from_us(job.moment + 1) if"),
            ("sql/ack.sql", "moment > {now}", "moment >= {now}"),
            ("sql/extend.sql", "moment > ?", "moment >= ?"),
        ),
        machine=True,
    ),
    edit("a result of jobs that are not done", "settle", "reading.py", " AND state = {DONE}", "", machine=True),
    edit("a result of a job whose heir is gone", "spawn", "reading.py", " AND handed_to IS NULL", ""),
    edit(
        "a result for every id",
        "settle",
        "reading.py",
        "bytes | None] = {}",
        "bytes | None] = dict.fromkeys(ids)",
        machine=True,
    ),
    edit("leases never end", "lease", "sql/move_clock.sql", "state IN (1, 2)", "state = 1", machine=True),
    edit("a slot is never freed", "group_capacity groups", "transitions.py", "job.grp, -1)", "job.grp)", machine=True),
    edit("a slot is freed twice", "group_capacity groups", "transitions.py", "job.grp, -1)", "job.grp, -2)"),
    edit("one slot too many", "groups group_capacity", "sql/group_turn.sql", "inflight <", "inflight <="),
    edit("a later limit wins", "groups group_capacity", "sql/set_limit.sql", " WHERE group_limit IS NULL", ""),
    edit("an ack keeps the slot", "group_capacity", "sql/ack.sql", "AND grp IS NULL AND", "AND"),
    edit("an expired lease keeps its slot", "group_capacity", "transitions.py", "(-1 if moves_on else 1)", "0"),
    edit("lost is not counted", "lost lease", "sql/grant.sql", "lost + (state = 2)", "lost"),
    edit("the fence stands still", "reserve lease", "sql/grant.sql", "deliveries + 1", "deliveries"),
    edit("an expired job keeps run_at", "lease run_at", "sql/grant.sql", "WHEN 2 THEN NULL", "WHEN 9 THEN NULL"),
    edit("a repeat is not forgotten", "repeat", "sql/grant.sql", "settled = '', settled_as = ''", "settled = settled"),
    edit("priority forgotten", "order", "enqueue.py", "-job.priority if job.group is None else 0,", "0,"),
    edit("ids decide", "order", "sql/ready.sql", "rank, time, arrival", "rank, time, id"),
    edit("an expired job keeps its time", "order", "sql/move_clock.sql", ":lined AND state = 2", "0"),
    edit("scheduled jobs start at once", "run_at", "enqueue.py", "run_at <= queue.at", "True", machine=True),
    edit("scheduled jobs never start", "run_at", "sql/move_clock.sql", "state IN (1, 2)", "state = 2"),
    edit("expired leases are overlooked", "lease", "sql/queue_before_reserve.sql", "state = 2 AND", "state = 9 AND"),
    edit(
        "groups are overlooked", "groups", "sql/queue_before_reserve.sql", "turn IS NOT NULL", "turn IS NOT NULL AND 0"
    ),
    edit("pause is ignored", "pause", "reserve.py", "if not state.queue.paused]", "]"),
    edit("keys of all queues are one", "idempotency", "sql/known_key.sql", "queue = ?", "? IS NOT NULL"),
    edit("dependents are forgotten", "flows", "sql/ack.sql", NO_EDGES, ""),
    edit("a join fires early", "flows", "sql/released.sql", "other.open = 1", "0", machine=True),
    edit("a done dependency holds", "flows", "sql/link.sql", "state IS NOT 3", "1"),
    edit("what is needed is pruned", "retention", "sql/prunable.sql", "job.holds > 0 OR ", ""),
    edit("open runs are pruned", "retention", "sql/prunable.sql", "AND flow.open > 0", "AND 0"),
    edit("an extension shortens", "lease", "sql/extend.sql", "max(moment, ?)", "?"),
    edit("any outcome repeats", "repeat", "settle.py", " and job.settled_as == type(outcome).__name__", ""),
    Mutant(
        "damaged records are handed out",
        "damaged",
        (
            ("reserve.py", "job = sound_row(row)", "job = JobRow(*row)"),
            (
                "records.py",
                "        plain\n        and type(kind) is str\n        and kind\n        and type(payload)",
                "        type(payload)",
            ),
        ),
    ),
    edit("a flow's flag is not set", "flows flow_status", "admin.py", "SET cancelled = 1", "SET cancelled = 0"),
    edit(
        "what is left does not follow",
        "cascade",
        "cascade.py",
        "    for num in ahead:\n        session.execute(NOTE, (num,))\n    return",
        "    return",
    ),
    edit(
        "what waits for a cancelled heir stays blocked",
        "cascade",
        "settle.py",
        "if new.state == CANCELLED and",
        "if False and",
    ),
    edit(
        "it comes back behind a cancelled job",
        "cascade",
        "sql/cancelled_with.sql",
        "other.state = 5",
        "other.state = 9",
    ),
    edit("arrivals are not reported", "wait", "session.py", "queue.arrived, queue.changed = number, True", "pass"),
    edit("a release forgets that it lost", "release lost", "settle.py", "job.lost += 1", "pass"),
    # Attempts, notes, times of their own
    edit("began_at stays as it was", "attempts", "sql/grant.sql", "began_at = ?,", "began_at = began_at + 0 * ?,"),
    edit("the trail is lost", "attempts", "settle.py", "job.trail = outcome.trail or job.trail", "pass"),
    edit("an ack with a trail is plain", "attempts", "settle.py", "or outcome.trail ", ""),
    edit("a retry empties the trail", "attempts", "settle.py", "outcome.trail or job.trail", "outcome.trail"),
    edit(
        "a failure keeps the class before",
        "attempts",
        "settle.py",
        "error_class or None,",
        "error_class or job.error_class,",
    ),
    edit("the worker is forgotten", "attempts", "transitions.py", 'job.token = ""', 'job.token = job.worker = ""'),
    edit("a release reports no loss", "attempts", "settle.py", "job.lost_at = moment", "pass"),
    edit("a takeover reports no loss", "attempts", "records.py", "= job.moment if job.state == LEASED else", "="),
    edit("a loss outlives a requeue", "attempts", "transitions.py", "    job.lost_at = None\n", ""),
    edit("a note of a lease that is over", "notes", "sql/extend.sql", "moment > ?", "? IS NOT NULL"),
    edit("an empty note is none", "notes", "sql/extend.sql", "coalesce(?, note)", "coalesce(nullif(?, x''), note)"),
    edit("no note empties it", "notes", "sql/extend.sql", "coalesce(?, note)", "?"),
    edit("a requeue keeps the note", "notes", "admin.py", "job.note = None", "pass"),
    edit("a note shortens a lease", "notes", "sql/extend.sql", "max(moment, ?)", "?"),
    edit("kept jobs are pruned early", "keep_for", "sql/prunable.sql", "AND keep_for IS NULL AND", "AND"),
    edit("kept jobs are never pruned", "keep_for", "sql/kept.sql", "< :present", "< 0 * :present"),
    edit("kept for the retention too", "keep_for", "admin.py", "moment + retention // MICROSECOND", "moment"),
    edit("kept jobs go although needed", "keep_for", "sql/kept.sql", "job.holds > 0 OR ", ""),
    # Steps
    edit("a step under any token", "steps", "sql/save_step.sql", "token = ?", "? IS NOT NULL"),
    edit("a step of a lease that is over", "steps", "sql/save_step.sql", "moment > ?", "? IS NOT NULL"),
    edit(
        "a saved step stays as it was",
        "steps",
        "sql/save_step.sql",
        "DO UPDATE SET at = excluded.at, ",
        "DO UPDATE SET ",
    ),
    edit("a new payload keeps the steps", "steps", "admin.py", 'if "payload" in changes and job.memos:', "if False:"),
    # Listings, counts, flows, figures
    edit("the newest come last", "filters", "listing.py", '("id < :after", "DESC")', '("id < :after", "ASC")'),
    edit("since leaves its moment out", "filters", "listing.py", ">= :since", "> :since"),
    edit("until keeps its moment", "filters", "listing.py", "< :until", "<= :until"),
    edit("the dead by created_at", "filters", "listing.py", "ELSE finished_at END", "ELSE created_at END"),
    edit(
        "a name of an error fits any end",
        "filters",
        "listing.py",
        "-1 - length(:error_name)) = '.' ||",
        "-length(:error_name)) =",
    ),
    edit("an error has both names", "filters", "listing.py", "({' OR '.join", "({' AND '.join"),
    edit("payloads are listed", "filters", "listing.py", "COLUMNS if wanted.payloads else LIGHT", "COLUMNS"),
    edit(
        "a due job is not counted",
        "filters",
        "sql/counts.sql",
        "state = 1 AND queue = known.name AND moment > known.at",
        "0",
    ),
    edit("a cap counts on", "filters", "reading.py", "min(number, most)", "number"),
    edit("one priority waits", "heads", "sql/heads_line.sql", "job.rank > ranks.rank", "false"),
    edit("groups do not wait", "heads", "sql/heads_line.sql", "job.grp = names.grp", "false"),
    edit("an ended lease does not wait", "heads", "reading.py", "self._between(LEASED, 1)", "[]"),
    edit("a full group is next", "heads", "reading.py", "room + freed[group]", "room + 1"),
    edit("an ended lease keeps its place", "heads", "reading.py", "freed.update(job.group for job in expired)", "pass"),
    edit("upcoming overlooks leases", "upcoming", "sql/upcoming.sql", "(1), (2)", "(1)"),
    edit("upcoming overlooks schedules", "upcoming", "sql/upcoming.sql", "(1), (2)", "(2)"),
    edit("upcoming returns the present", "upcoming", "sql/upcoming.sql", "moment > :now", "moment >= :now"),
    Mutant(
        "a dead flow runs",
        "flow_listing",
        (
            ("listing.py", "if stopped - {CANCELLED}:", "if stopped - {DLQ, CANCELLED}:"),
            ("listing.py", "import CANCELLED,", "import CANCELLED, DLQ,"),
        ),
    ),
    edit("a cancelled flow runs", "flow_listing", "listing.py", "elif stopped:", "elif False:"),
    edit("a flow is as old as its last job", "flow_listing", "sql/flows.sql", "id LIMIT 1", "id DESC LIMIT 1"),
    edit("figures are replaced", "figures", "sql/add_figure.sql", "number + excluded.number", "excluded.number"),
    edit("figures stay", "figures", "reading.py", "session.execute(FORGET_FIGURE, old)", "pass"),
    edit("figures of the last minute", "figures", "sql/figures.sql", "minute < ?", "minute <= ?"),
    # Changes on condition, the audit
    edit("whatever was seen", "seen", "admin.py", "_seen_of(job) != was", "False"),
    edit("edits are not seen", "seen", "admin.py", "job.edits if job.edits is not None and", "0 if"),
    edit("an end is not seen", "seen", "admin.py", "from_us(job.finished_at) if", "None if"),
    edit(
        "an entry is kept as it was",
        "audit",
        "sql/put_audit.sql",
        "DO UPDATE SET at = excluded.at, done_by = excluded.done_by, data = excluded.data",
        "DO NOTHING",
    ),
    edit("an entry keeps its time", "audit", "sql/put_audit.sql", "at = excluded.at, ", ""),
    edit("the oldest entry first", "audit", "sql/audit.sql", "at DESC, id DESC", "at, id"),
    edit("entries of one moment in any order", "audit", "sql/audit.sql", ", id DESC", ", id"),
    edit("the last entry again", "audit", "sql/audit.sql", "(at, id) < (:at, :id)", "(at, id) <= (:at, :id)"),
    edit("since leaves its moment out of the audit", "audit", "sql/audit.sql", "at >= :since", "at > :since"),
    edit("entries of everyone", "audit", "sql/audit.sql", "OR done_by = :who", "OR :who IS NOT NULL"),
    edit("entries stay", "audit", "listing.py", "session.execute(FORGET_AUDIT, old)", "pass"),
    edit("entries go at 90 days", "audit", "sql/old_audit.sql", "at < ?", "at <= ?"),
    edit("a cut page of the audit is the last", "audit", "listing.py", "found, after\n", "found, None\n"),
    # Schedules
    edit("any revision is changed", "schedules", "schedules.py", "stored != change.expect", "False", machine=True),
    edit("a repeated change is refused", "schedules", "schedules.py", "stored == to.revision", "False"),
    edit("a deletion is not repeated", "schedules", "schedules.py", " and not is_gone:", ":"),
    edit("a schedule keeps its queue", "schedules", "sql/put_schedule.sql", "queue = excluded.queue, ", ""),
    edit("a schedule keeps its revision", "schedules", "sql/put_schedule.sql", "revision = excluded.revision, ", ""),
    edit("a schedule keeps its moment", "schedules", "sql/put_schedule.sql", "next_at = excluded.next_at, ", ""),
    edit("a schedule keeps its body", "schedules", "sql/put_schedule.sql", ", body = excluded.body", ""),
    edit(
        "jobs are stored before the comparison",
        "schedule_jobs",
        "schedules.py",
        "stored = _revision(session, name)",
        "enqueue(session, change.jobs, now, max_payload); stored = _revision(session, name)",
    ),
    edit(
        "a change stores no job",
        "schedule_jobs",
        "schedules.py",
        "enqueue(session, change.jobs, now, max_payload)",
        "pass",
        machine=True,
    ),
    edit(
        "a change is not checked",
        "schedule_jobs",
        "schedules.py",
        "check_schedule_changes(changes, max_payload)",
        "pass",
    ),
    edit("due after its moment", "schedule_pages", "sql/due_places.sql", "next_at <= :now", "next_at < :now"),
    edit("due in any queue", "schedule_pages", "sql/due_places.sql", "queue = :queue", "(queue = :queue OR 1)"),
    edit("the last due schedule again", "schedule_pages", "schedules.py", "[1].encode())", "[1].encode()[:-1])"),
    edit(
        "due schedules with a longer name are passed",
        "schedule_pages",
        "schedules.py",
        "[1].encode())",
        "[1].encode() + bytes([255]))",
    ),
    edit(
        "the rest of a moment is left out",
        "schedule_pages",
        "sql/due_places.sql",
        "(next_at, name) > (:at, :name)",
        "next_at > :at AND :name = :name",
    ),
    edit("due by name", "schedule_pages", "sql/due_places.sql", "ORDER BY next_at, name", "ORDER BY name"),
    Mutant(
        "queues are not merged",
        "schedule_pages",
        (
            ("schedules.py", "in merge(*lines)", "in chain(*lines)"),
            ("schedules.py", "import islice", "import chain, islice"),
        ),
    ),
    edit("a look ends after its first places", "schedule_pages", "schedules.py", "len(rows) < PLACES_PER_LOOK", "True"),
    edit(
        "the next schedule is due already", "schedule_pages", "sql/due_queues.sql", "next_at > :now", "next_at >= :now"
    ),
    edit(
        "the last schedule is the next",
        "schedule_pages",
        "sql/due_queues.sql",
        "next_at LIMIT 1",
        "next_at DESC LIMIT 1",
    ),
    edit("the next of the last queue", "schedule_pages", "schedules.py", "min(moments)", "max(moments)"),
    edit(
        "only the first page says what is next",
        "schedule_pages",
        "schedules.py",
        "if moments else",
        "if moments and wanted.after is None else",
    ),
    edit("the last schedule again", "schedule_pages", "sql/schedules.sql", "name > :after", "name >= :after"),
    edit(
        "the last schedule of a queue again",
        "schedule_pages",
        "sql/schedules_of_queue.sql",
        "name > :after",
        "name >= :after",
    ),
    edit(
        "names are of any queue", "schedule_pages", "schedules.py", " and wanted.queue in (None, schedule.queue):", ":"
    ),
    edit(
        "names begin anew on each page",
        "schedule_pages",
        "schedules.py",
        "names[bisect_right(names, wanted.after) :]",
        "names",
    ),
    edit(
        "a full page of schedules is the last",
        "schedule_pages",
        "schedules.py",
        "islice(rows, wanted.limit + 1)",
        "islice(rows, wanted.limit)",
    ),
    # Amendments
    edit(
        "an old version is amended",
        "amend",
        "admin.py",
        "(seen.deliveries, seen.edits) != (change.deliveries, change.edits)",
        "False",
    ),
    edit("amended under a lease", "amend", "admin.py", "job.state == DONE or job.state == LEASED", "job.state == DONE"),
    edit("an amended job keeps its place", "amend", "admin.py", "if job.state == WAITING and", "if False and"),
    edit("an amended priority orders nothing", "amend", "admin.py", 'else -changes["priority"]', "else job.rank"),
    edit(
        "any change gives up the place",
        "amend",
        "admin.py",
        'not changes.keys().isdisjoint({"run_at", "priority"})',
        "True",
    ),
)


@contextmanager
def copied(mutant: Mutant | None, folder: Path) -> Iterator[Any]:
    """A copy of the driver's package with the mistake in it; None: as it is."""
    name = f"sqlite_copy_{abs(hash((mutant, str(folder))))}"
    target = folder / name
    shutil.copytree(SOURCE, target, ignore=shutil.ignore_patterns("__pycache__"))
    for place, old, new in mutant.edits if mutant else ():
        file = target / place
        text = file.read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise LookupError(f"{place} holds the text to be mutated {text.count(old)} times, expected once: {old}")
        file.write_text(text.replace(old, new), encoding="utf-8")
    for file in target.glob("*.py"):
        file.write_text(file.read_text(encoding="utf-8").replace(sqlite.__name__, name), encoding="utf-8")
    with imported_from(folder, name) as package:
        yield package


def cases(package: Any, folder: Path, **how: Any) -> Any:
    def hurt(driver: Any, id: str, kind: str) -> None:
        damage(driver.options.path, id, kind)

    dsn = f"sqlite:///{folder}/{package.__name__}.db?synchronous=normal"
    return run(lambda: package.SqliteDriver(dsn), damage=hurt, **how)


# What `make test` makes sure of: the fence, and the promises that lose or double a job when they break.
EACH_TIME = (
    "token check dropped",
    "expiry compared with <",
    "a slot is freed twice",
    "lost is not counted",
    "the fence stands still",
    "pause is ignored",
    "a join fires early",
    "what is needed is pruned",
    "any outcome repeats",
    "whatever was seen",
    "any revision is changed",
    "an old version is amended",
)


def named(mutant: Mutant) -> str:
    return mutant.name


@pytest.mark.left_to("full")
def test_the_copy_without_a_mistake_passes(tmp_path, fast_sqlite_folder):
    themes = sorted({theme for mutant in MUTANTS for theme in mutant.themes.split()})
    with copied(None, tmp_path) as package:
        assert package.SqliteDriver is not sqlite.SqliteDriver
        report = cases(package, fast_sqlite_folder, themes=themes)
        assert report.ok, str(report)


@pytest.mark.left_to("full", except_for=lanes.Chosen(*EACH_TIME))
@pytest.mark.parametrize("mutant", MUTANTS, ids=named)
def test_the_cases_notice(mutant, tmp_path, monkeypatch, fast_sqlite_folder):
    monkeypatch.setattr("taskharbor.conformance.cases.wait.PATIENCE", 0.5)  # a hint that never comes
    with copied(mutant, tmp_path) as package:
        report = cases(package, fast_sqlite_folder, themes=mutant.themes.split(), stop_at_first=True)
        assert report.failed, f"survived: {mutant.name}"


@pytest.mark.left_to("full", except_for=lanes.Chosen("token check dropped"))
@pytest.mark.parametrize("mutant", [mutant for mutant in MUTANTS if mutant.machine], ids=named)
def test_the_machine_notices(mutant, tmp_path, fast_sqlite_folder):
    profiles = ["one group"] if "slot" in mutant.name else ["mixed", "flow"]
    with copied(mutant, tmp_path) as package:
        dsn = f"sqlite:///{fast_sqlite_folder}/machine-{package.__name__}.db?synchronous=normal"

        def walk() -> None:
            for seed in (0, 1):  # a second hundred walks for what the first did not meet
                check_machine(lambda: package.SqliteDriver(dsn), runs=100, shrink=False, seed=seed, profiles=profiles)

        with pytest.raises(Exception, match=r"(?s).*"):
            walk()
