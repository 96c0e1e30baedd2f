"""Upgrades from schemas 1 and 2: a file with jobs in it, and programs of these schemas that go on working beside it.

Such a program is its statements, frozen in sqlite_statements_v1.sql and sqlite_statements_v2.sql, with the parameters
that it gave them.
"""

import re
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from taskharbor.drivers import Ack, DriverError, Fail, Retry, ScheduleChange, StoredSchedule
from taskharbor.drivers.sqlite import schema
from taskharbor.model.audit import StoredAudit
from taskharbor.model.job import Seen
from taskharbor.model.times import to_us
from tests.drivers.sqlite_files import LEASE, NOW, job, on

pytestmark = pytest.mark.lane("sqlite")


def frozen(number):
    """The statements of a program of this schema, by name."""
    text = Path(__file__).with_name(f"sqlite_statements_v{number}.sql").read_text()
    return dict(re.findall(r"-- (\w+)\n(.*?)\n;\n", text, re.DOTALL))


STATEMENTS = {number: frozen(number) for number in (1, 2)}
OLD = STATEMENTS[1]
AT = to_us(NOW)
TOKEN = "t" * 32


class OldProgram:
    """What a program of schema 1 does to the file."""

    statements = OLD

    def __init__(self, path):
        self.connection = sqlite3.connect(path, isolation_level=None, timeout=30)

    def all(self, name, given=()):
        return self.connection.execute(self.statements[name], given).fetchall()

    def enqueue(self, id, *, state=1, flow_id=None, finished_at=None):
        self.all("queue_save", ("default", 0, 0, 1, 0, 1))
        if flow_id:
            self.all("flow_add", (flow_id,))
        (number,) = self.connection.execute("SELECT coalesce(max(num), 0) + 1 FROM taskharbor_jobs").fetchone()
        given = (number, id, "default", state, int(state == 1), 0, AT, number, None, "t", b"{}", None, None, 0, 0)
        self.all("insert", (*given, None, None, 0, None, flow_id, None, AT, 0))
        if finished_at is not None:
            self.connection.execute("UPDATE taskharbor_jobs SET finished_at = ? WHERE id = ?", (finished_at, id))

    def reserve(self):
        found = self.all("ready", ("default", 1))
        (num, id), *_ = [row[:2] for row in found]
        self.all("grant", (AT + 60_000_000, "old", f'{{"{num}": "{TOKEN}"}}'))
        return id

    def ack(self, id):
        self.all("ack", {"now": AT, "given": f'{{"{id}": "{TOKEN}"}}'})

    def retry(self, id):
        """As it saved a job that joins its line again."""
        (num,) = self.connection.execute("SELECT num FROM taskharbor_jobs WHERE id = ?", (id,)).fetchone()
        given = (1, 1, AT, num, None, "", "", TOKEN, "Retry", None, 1, 0, None, "failed", AT, "", None, None)
        self.all("save", (*given, num))

    def counts(self):
        return {(queue, state): number for queue, state, number in self.all("counts", {"now": AT})}


class ProgramOfSchema2(OldProgram):
    """The same of schema 2, whose statements name the columns that it added."""

    statements = STATEMENTS[2]

    def store(self, id):
        self.all("queue_save", ("default", 0, 0, 1, 0, 1))
        (number,) = self.connection.execute("SELECT coalesce(max(num), 0) + 1 FROM taskharbor_jobs").fetchone()
        given = (number, id, "default", 1, 1, 0, AT, number, None, "t", b"{}", None, None, 0, 0)
        self.all("insert", (*given, None, None, 0, None, None, None, AT, 0, None))

    def reserve(self):
        (num, id), *_ = [row[:2] for row in self.all("ready", ("default", 1))]
        self.all("grant", (AT + 60_000_000, "old", AT, f'{{"{num}": "{TOKEN}"}}'))
        return id

    def fail(self, id):
        """As it saved a job that is dead."""
        (num,) = self.connection.execute("SELECT num FROM taskharbor_jobs WHERE id = ?", (id,)).fetchone()
        given = (4, 0, AT, num, None, "", "old", TOKEN, "Fail", None, 1, 0, None, "failed", AT, "over", AT, None)
        self.all("save", (*given, b"trail", "Error", "print", None, num))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs.db"


@pytest.fixture
def old(path):
    """A program of schema 1 on a file that was upgraded."""
    on(path, lambda driver: driver.queues())
    program = OldProgram(path)
    with closing(program.connection):
        yield program


def create(path, number):
    """A file of this schema, without jobs."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        for each in range(1, number + 1):
            (script,) = schema.FOLDER.glob(f"{each:04d}_*.sql")
            for statement in schema.statements(script.read_text(encoding="utf-8")):
                connection.execute(statement)
        connection.execute("UPDATE taskharbor_meta SET schema = ?", (number,))


def a_file_of_schema_1(path):
    create(path, 1)
    program = OldProgram(path)
    with closing(program.connection):
        program.enqueue("ready")
        program.enqueue("dead", state=4, flow_id="f", finished_at=AT)
        program.enqueue("cancelled", state=5, flow_id="g", finished_at=AT)
        program.connection.execute("UPDATE taskharbor_flows SET open = 0 WHERE id = 'g'")
        program.enqueue("done", state=3, finished_at=AT)
        program.enqueue("blocked", state=0)


def test_a_file_with_jobs_is_upgraded(path):
    a_file_of_schema_1(path)

    async def scenario(driver):
        listed = {
            state: [item.job.id for item in (await driver.list(now=NOW, state=state)).items]
            for state in ("ready", "dlq", "cancelled", "done", "blocked")
        }
        flows = {flow.id: str(flow.status) for flow in (await driver.flows(now=NOW)).items}
        (held,) = await driver.reserve(["default"], NOW, LEASE, 5, "new")
        await driver.settle([Ack(held.lease, trail=b"trail")], NOW)
        return listed, flows, await driver.inspect("ready", NOW), await driver.prune(NOW + LEASE, 10)

    listed, flows, info, pruned = on(path, scenario, migrate="auto")
    assert listed == {
        "ready": ["ready"],
        "dlq": ["dead"],
        "cancelled": ["cancelled"],
        "done": ["done"],
        "blocked": ["blocked"],
    }
    assert flows == {"f": "failed", "g": "cancelled"}
    assert (info.job.began_at, info.job.ran_on, info.job.trail, info.job.edits) == (NOW, "new", b"trail", 0)
    assert pruned == 3
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT schema, oldest FROM taskharbor_meta").fetchone() == (3, 1)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_file_of_schema_1_is_refused_where_programs_may_not_upgrade(path):
    a_file_of_schema_1(path)
    with pytest.raises(DriverError, match=r"schema is number 1, .* needs 3"):
        on(path, lambda driver: driver.queues(), migrate="manual")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT schema FROM taskharbor_meta").fetchone() == (1,)


@pytest.mark.parametrize(("number", "name"), [(number, name) for number in STATEMENTS for name in STATEMENTS[number]])
def test_every_statement_of_an_older_schema_still_runs(old, number, name):
    """A statement names the index that it needs: SQLite refuses it if that cannot serve any more."""
    text = STATEMENTS[number][name]
    given = dict.fromkeys(re.findall(r":(\w+)", text)) or [None] * text.count("?")
    plan = old.connection.execute(f"EXPLAIN QUERY PLAN {text}", given).fetchall()
    assert plan or text.startswith("INSERT")


def test_a_job_that_an_old_program_stored_runs_on_a_new_one(old, path):
    old.enqueue("a")

    async def scenario(driver):
        (held,) = await driver.reserve(["default"], NOW, LEASE, 5, "new")
        assert (held.job.began_at, held.job.ran_on, held.job.edits, held.lost_by) == (NOW, "new", 0, None)
        assert await driver.settle([Ack(held.lease)], NOW) == [None]

    on(path, scenario)
    assert old.counts() == {("default", "done"): 1}


def test_a_job_that_a_new_program_stored_runs_on_an_old_one(old, path):
    on(path, lambda driver: driver.enqueue([job("a", keep_for=timedelta(days=9)), job("b")], NOW))
    for id in ("a", "b"):
        assert old.reserve() == id
        old.ack(id)
    assert old.counts() == {("default", "done"): 2}

    async def scenario(driver):
        info = await driver.inspect("a", NOW)
        assert (info.state, info.job.began_at, info.job.ran_on) == ("done", None, "")
        assert info.job.keep_for == timedelta(days=9)
        assert await driver.prune(NOW + LEASE, 5) == 1

    on(path, scenario)


def test_an_old_program_prunes_what_has_ended(old, path):
    """It knows nothing of jobs that are kept longer: a deploy of new programs must not take weeks."""
    old.enqueue("a", state=3, finished_at=AT - 5)
    old.enqueue("b", state=3, finished_at=AT + 5)
    (row,) = old.all("prunable", (3, "default", AT, -1, -1))
    assert row[4] == "a"


def test_a_loss_that_an_old_program_followed_is_not_reported(old, path):
    """Only the execution directly before may have been lost, and the old program does not know `lost_at`."""

    async def lose(driver):
        await driver.enqueue([job("a")], NOW)
        await driver.reserve(["default"], NOW, LEASE, 1, "lost")
        assert await driver.release("lost", NOW) == 1

    async def take(driver):
        (held,) = await driver.reserve(["default"], NOW, LEASE, 1, "new")
        return held.lost_by

    on(path, lose)
    assert old.reserve() == "a"
    old.retry("a")
    assert on(path, take) is None


def test_an_outcome_of_an_old_program_leaves_what_it_does_not_know(old, path):
    async def before(driver):
        await driver.enqueue([job("a")], NOW)
        (held,) = await driver.reserve(["default"], NOW, LEASE, 1, "new")
        await driver.extend([held.lease], NOW, LEASE, {held.lease.token: b"note"})
        await driver.settle([Retry(held.lease, None, 1, "e", NOW, "Error", "print", b"trail")], NOW)

    async def after(driver):
        (held,) = await driver.reserve(["default"], NOW, LEASE, 1, "new")
        assert await driver.settle([Fail(held.lease, "over", 1, NOW)], NOW) == [None]
        return held.job

    on(path, before)
    assert old.reserve() == "a"
    old.retry("a")
    record = on(path, after)
    assert (record.trail, record.note) == (b"trail", b"note")
    assert (record.error_class, record.fingerprint) == ("Error", "print")


def test_a_program_of_schema_2_goes_on_beside_this_one(path):
    """Its file is upgraded under it; it stores, runs and ends jobs as before, those of schedules among them. The audit
    is not its concern."""
    create(path, 2)
    old = ProgramOfSchema2(path)
    with closing(old.connection):
        old.store("before")

        async def scenario(driver):
            (held,) = await driver.reserve(["default"], NOW, LEASE, 1, "new")
            assert held.job.id == "before"
            assert await driver.settle([Ack(held.lease)], NOW) == [None]
            old.store("dead")
            assert old.reserve() == "dead"
            old.fail("dead")
            info = await driver.inspect("dead", NOW)
            assert (info.state, info.job.finished_at, info.job.trail) == ("dlq", NOW, b"trail")
            seen = [Seen.of(info)]
            assert await driver.requeue(["dead"], NOW, seen=seen) == [None]
            assert old.reserve() == "dead"
            (refused,) = await driver.delete(["dead"], seen=seen)
            assert "changed since it was read" in str(refused)
            old.ack("dead")
            await driver.put_audit([StoredAudit(id="a", at=NOW, by="anna")], NOW)
            assert len((await driver.audit()).items) == 1
            row = StoredSchedule(name="s", queue="default", revision="1", next_at=NOW)
            change = ScheduleChange(name="s", expect=None, to=row, jobs=(job("scheduled"),))
            assert await driver.change_schedules([change], NOW) == [True]
            assert old.reserve() == "scheduled"
            old.ack("scheduled")
            assert (await driver.due_schedules(["default"], NOW)).items == (row,)
            assert old.counts() == {("default", "done"): 3}

        on(path, scenario, migrate="auto")
        assert old.connection.execute("SELECT schema, oldest FROM taskharbor_meta").fetchone() == (3, 1)
