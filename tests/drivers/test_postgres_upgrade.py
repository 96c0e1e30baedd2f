"""Upgrades: old and new programs use one schema side by side, as long as the schema allows it."""

import asyncio
import contextlib
import json
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from taskharbor.drivers import (
    Ack,
    Amend,
    DriverError,
    Fail,
    JobRecord,
    Lease,
    Lost,
    Retry,
    ScheduleChange,
    Seen,
    StoredAudit,
    StoredSchedule,
    WrongState,
)
from taskharbor.drivers.postgres import PostgresDriver, schema, statement
from taskharbor.model.job import EPOCH
from tests.drivers.postgres_recount import mistakes
from tests.servers import postgres

pytestmark = pytest.mark.lane("postgres")
LEASE = timedelta(seconds=60)
TICKS = 1_000_000_000_000_000


@pytest.fixture
def address():
    return postgres.shared().address(postgres.shared().database())


@contextlib.contextmanager
def newer_program(address, how="keeps"):
    """A newer program, which has upgraded the schema; yields a function that lets it go on and returns what it did."""
    command = [sys.executable, "-m", "tests.drivers.postgres_newer_program", address, how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        output, input = child.stdout, child.stdin
        assert output.readline() == "upgraded\n"

        def go_on() -> str:
            input.write("go\n")
            input.flush()
            return output.readline().strip()

        yield go_on
        input.close()
        assert child.wait(30) == 0


async def life(driver, name):
    """Every call of a worker, over a few jobs; afterwards as many jobs are ready as before."""
    now = await driver.server_time()
    flow = [JobRecord(id=f"{name}{n}", type="t", queue=name, flow_id=name, group="g") for n in range(3)]
    last = JobRecord(id=f"{name}last", type="t", queue=name, depends_on=tuple(job.id for job in flow))
    await driver.enqueue([*flow, last], now)
    await driver.enqueue([JobRecord(id=f"{name}one", type="t", queue=name)], now)
    while held := await driver.reserve([name], now, LEASE, 5, "old"):
        await driver.extend([each.lease for each in held], now, LEASE)
        outcomes = [
            Retry(each.lease, None, 1) if not each.job.attempts else Ack(each.lease, b"1") for each in held
        ]  # fmt: skip
        assert await driver.settle(outcomes, now) == [None] * len(held)
    await driver.enqueue([JobRecord(id=f"{name}dead", type="t", queue=name)], now)
    (held,) = await driver.reserve([name], now, LEASE, 5, "old")
    assert await driver.settle([Fail(held.lease, "no", 1, now)], now) == [None]
    assert await driver.requeue([held.job.id], now) == [None]
    assert await driver.cancel([held.job.id], now) == [None]
    assert await driver.delete([held.job.id]) == [None]
    assert (await driver.counts(now))[name] == {"done": 5}
    assert len((await driver.list(now=now, queue=name)).items) == 5
    assert (await driver.flow(name, now)).status == "succeeded"
    assert await driver.wait([name], 0.0) is False
    assert await driver.prune(now + LEASE, 100) == 5


def test_old_programs_finish_and_start_again_while_new_ones_start(address):
    async def scenario():
        old = PostgresDriver(address)
        await old.open()
        for turn in range(4):  # so that its statements are prepared, and their plans kept
            await life(old, f"before{turn}")
        with newer_program(address) as go_on:
            await old.enqueue([JobRecord(id="by the old one", type="t")], await old.server_time())
            for turn in range(4):
                await life(old, f"beside{turn}")
            again = PostgresDriver(f"{address}?migrate=manual")
            await again.open()
            for turn in range(4):
                await life(again, f"again{turn}")
            now = await again.server_time()
            (held,) = await again.reserve(["default"], now, LEASE, 1)
            assert held.job.id == "by the new one"
            assert await again.settle([Ack(held.lease)], now) == [None]
            assert go_on() == "by the old one"
            await again.close()
            assert await PostgresDriver(address).migrate() == statement.VERSION + 1  # there is no way back, and no need
        await old.close()

    asyncio.run(scenario())
    assert mistakes(address) == []


def test_a_schema_for_newer_programs_only_is_refused(address):
    async def opened(dsn):
        driver = PostgresDriver(dsn)
        await driver.open()
        await driver.close()

    asyncio.run(opened(address))
    with newer_program(address, "raises") as go_on:
        assert go_on() == "by the new one"
        for query in ("", "?migrate=auto", "?migrate=manual"):
            with pytest.raises(DriverError, match=r"for programs that know number 5 or later; this version .* knows 4"):
                asyncio.run(opened(address + query))
    with psycopg.connect(address) as connection:
        query = "select distinct substring(proname from '_v[0-9]+$') from pg_proc p join pg_namespace n on "
        found = connection.execute(f"{query} n.oid = pronamespace where nspname = 'taskharbor'").fetchall()
        assert found == [("_v5",)], "the functions of the older version are gone"


def schema_of_number(number: int) -> str:
    """A script for a schema of number 1 to 3, with the functions that the tests below call."""
    tables = "".join(text for name, text in sorted(schema.sources("migrations")) if int(name[:4]) <= number)
    functions = Path(__file__).with_name(f"postgres_functions_v{number}.sql").read_text("utf-8")
    return f"""
        begin;
        create schema taskharbor;
        set local search_path = taskharbor, pg_temp;
        set local check_function_bodies = off;
        {tables};
        insert into meta (version, oldest) values ({number}, 1);
        {functions}
        commit;"""


def test_a_program_of_number_1_works_beside_this_one(address):
    """The functions that it calls are still there, with their arguments, and see each other's jobs."""
    with psycopg.connect(address, autocommit=True) as old:
        old.execute(schema_of_number(1).encode())
        now = 1_000_000_000_000_000
        stored = "enqueue_one_v1(%s, 'q', 't', '', null, null, 0, 0, 0, null, null, null, %s, false)"
        reserved = "id from taskharbor.reserve_v1('[\"q\"]', %s, %s, 1, 'old', %s, false, null, true)"
        acked = "ack_v1(%s, %s, null, %s)"

        async def scenario():
            with pytest.raises(DriverError, match="is number 1, this version of TaskHarbor needs 4"):
                await PostgresDriver(address).open()
            new = PostgresDriver(f"{address}?migrate=auto")
            await new.open()
            at = EPOCH + timedelta(microseconds=now)
            old.execute(f"select taskharbor.{stored}", ("by the old one", now))
            (held,) = await new.reserve(["q"], at, LEASE, 1)
            assert held.job.id == "by the old one"
            assert await new.settle([Ack(held.lease)], at) == [None]
            await new.enqueue([JobRecord(id="by the new one", type="t", queue="q")], at)
            rows = old.execute(f"select {reserved}", (now, now + 60_000_000, "a" * 32)).fetchall()
            assert rows == [("by the new one",)]
            rows = old.execute(f"select taskharbor.{acked}", ("by the new one", "a" * 32, now)).fetchall()
            assert rows == [(None,)]
            assert await new.counts(at) == {"q": {"done": 2}}
            await new.close()

        asyncio.run(scenario())
    assert mistakes(address) == []


class ProgramOfNumber2:
    """What a program of number 2 sends, on one connection: its plans were made before the upgrade."""

    version = 2

    def __init__(self, address: str) -> None:
        self.connection = psycopg.connect(address, autocommit=True)
        self.number = 0

    def call(self, text: str, *parameters: object) -> list[tuple[Any, ...]]:
        text = text.replace("_v(", f"_v{self.version}(")
        return self.connection.execute(f"select * from taskharbor.{text}".encode(), parameters).fetchall()

    def enqueue(self, id: str, group: str | None = None) -> None:
        if group is None:
            one = "enqueue_one_v(%s, 'q', 't', '', null, null, 0, 0, 0, null, null, null, %s, false)"
            assert self.call(one, id, TICKS) == [(False,)]
            return
        job = {"o": 0, "id": id, "queue": "q", "type": "t", "payload": "", "grp": group, "group_limit": 2}
        limit = [{"o": 0, "id": id, "queue": "q", "grp": group, "lim": 2}]
        many = "enqueue_v(%s, null, null, %s, null, '[\"q\"]', %s, false)"
        assert self.call(many, json.dumps([job]), json.dumps(limit), TICKS) == []

    def reserve(self, worker: str = "old", limit: int = 10, at: int = TICKS) -> dict[str, str]:
        """The ids of what it reserved, with their tokens."""
        tokens = ",".join(f"{self.number + n:032x}" for n in range(limit))
        self.number += limit
        taken = "reserve_queue_v('q', %s, %s, %s, %s, %s, true)"
        return {row[0]: row[13] for row in self.call(taken, at, at + 60_000_000, limit, worker, tokens)}

    def ack(self, held: dict[str, str]) -> None:
        ids, tokens = "\n".join(held), ",".join(held.values())
        assert self.call("ack_v(%s, %s, null, %s)", ids, tokens, TICKS) == [(None,)]

    def settle(self, held: dict[str, str], **outcome: Any) -> None:
        given = [{"o": n, "id": id, "token": token, **outcome} for n, (id, token) in enumerate(held.items())]
        sent = json.dumps(given, separators=(",", ":"))  # as that program writes it: settle looks for a text in it
        assert self.call("settle_v(%s, %s, true)", sent, TICKS) == []

    def life(self, name: str) -> None:
        """Every call of a worker; nothing is left of it but what is pruned at the end."""
        self.enqueue(f"{name}1")
        self.enqueue(f"{name}2", group="g")
        held = self.reserve()
        assert sorted(held) == [f"{name}1", f"{name}2"]
        given = json.dumps([{"o": n, "id": id, "token": token} for n, (id, token) in enumerate(held.items())])
        assert {row[1] for row in self.call("extend_v(%s, %s, %s)", given, TICKS, TICKS + 90_000_000)} == {5}
        self.settle(held, was=2, kind=2, attempts=1, last_error="no")
        assert self.call("release_v('old', %s, '[]')", TICKS) == [(0, 0)]
        assert len(self.reserve()) == 2
        assert self.call("release_v('old', %s, '[]')", TICKS) == [(2, 0)]
        held = self.reserve()
        self.settle({f"{name}1": held.pop(f"{name}1")}, was=3, kind=3, attempts=2, reason="no")
        self.ack(held)
        assert self.call("requeue_v(%s, %s, null, true)", json.dumps([f"{name}1"]), TICKS) == [([None],)]
        assert self.call("cancel_v(%s, %s, 'no')", json.dumps([f"{name}1"]), TICKS) == [([None],)]
        assert self.prune() == 2

    def prune(self) -> int:
        return self.call("prune_v(%s, 100)", TICKS + 1)[0][0]


class ProgramOfNumber3(ProgramOfNumber2):
    """The same of number 3."""

    version = 3

    def prune(self) -> int:
        return self.call("prune_v(%s, %s, 100)", TICKS + 1, TICKS + 1)[0][0]

    def life(self, name: str) -> None:
        """It also amends, lists, counts and adds figures."""
        super().life(name)
        self.enqueue(f"{name}3")
        change = json.dumps([{"id": f"{name}3", "deliveries": 0, "edits": 0, "priority": 4}])
        assert self.call("amend_v(%s, %s)", change, TICKS) == [([None],)]
        assert self.call("list_ids_v('{}', true, 5, 10, %s)", TICKS)[0][0][-1:] != []
        assert ("q", "ready", 1) in self.call("count_jobs_v(%s, 1)", TICKS)
        assert self.call("upcoming_v('[\"none\"]', %s)", TICKS) == [(None,)]
        assert self.call("list_flows_v(null, false, null, null, null, 5, 10)") == []
        figures = json.dumps([{"minute": 0, "queue": "q", "name": "done", "n": 1}])
        assert len(self.call("add_figures_v(%s, 0)", figures)) == 1
        assert self.call("delete_jobs_v(%s)", json.dumps([f"{name}3"])) == [([None],)]


def test_a_program_of_number_2_works_beside_this_one(address):
    """It does all that it did, over the tables of today; what it does not know, it leaves to the others."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(schema_of_number(2).encode())
    old = ProgramOfNumber2(address)

    async def scenario():
        old.enqueue("waits")
        before = old.reserve("first")
        for turn in range(7):  # so that its plans are kept
            old.life(f"before{turn}")
        new = PostgresDriver(f"{address}?migrate=auto")
        await new.open()
        for turn in range(2):
            old.life(f"beside{turn}")
        at = EPOCH + timedelta(microseconds=TICKS)
        assert (await new.list(now=at, state="inflight")).items[0].job.began_at is None
        (again,) = await new.reserve(["q"], at + LEASE, LEASE, 1, "new")
        assert again.lost_by == Lost("first", None, at + LEASE)
        refused = Retry(again.lease, None, 1, "no", None, "ValueError", "f", b"trail")
        assert await new.settle([refused], at + LEASE) == [None]
        held = old.reserve(at=TICKS + 61_000_000)
        assert [*held] == [*before]
        job = (await new.inspect("waits", at)).job
        assert (job.ran_on, job.began_at, job.trail) == ("old", at + LEASE, b"trail"), "began_at is of the one before"
        assert await new.extend([Lease("waits", "q", held["waits"], at)], at + LEASE, LEASE, {held["waits"]: b"3"})
        assert await new.release("old", at + LEASE) == 1
        held = old.reserve(at=TICKS + 61_000_000)
        old.ack(held)
        assert (await new.inspect("waits", at)).state == "done"
        await new.enqueue([JobRecord(id="amended", type="t", queue="q", keep_for=timedelta(days=9))], at)
        assert await new.amend([Amend(id="amended", deliveries=0, edits=0, payload=b"x")], at) == [None]
        old.ack(old.reserve())
        assert await new.counts(at) == {"q": {"done": 2}}
        await new.close()

    asyncio.run(scenario())
    old.connection.close()
    assert mistakes(address) == []


def test_a_program_of_number_3_works_beside_this_one(address):
    """It does all that it did. What it changes, a program of today notices by what was seen."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(schema_of_number(3).encode())
    old = ProgramOfNumber3(address)

    async def scenario():
        for turn in range(7):  # so that its plans are kept
            old.life(f"before{turn}")
        with pytest.raises(DriverError, match="is number 3, this version of TaskHarbor needs 4"):
            await PostgresDriver(address).open()
        new = PostgresDriver(f"{address}?migrate=auto")
        await new.open()
        for turn in range(2):
            old.life(f"beside{turn}")
        at = EPOCH + timedelta(microseconds=TICKS)
        await new.enqueue([JobRecord(id="a", type="t", queue="q")], at)
        old.settle(old.reserve(), was=3, kind=3, attempts=1, reason="no")
        seen = [Seen.of(await new.inspect("a", at))]
        assert await new.requeue(["a"], at, seen=seen) == [None]
        old.ack(old.reserve())
        for call in (new.requeue(["a"], at, seen=seen), new.cancel(["a"], at, seen), new.delete(["a"], seen)):
            (refused,) = await call
            assert isinstance(refused, WrongState)
            assert "changed since it was read" in str(refused)
        entry = StoredAudit(id="e", at=at, by="anna", data=b"x")
        await new.put_audit([entry], at)
        assert (await new.audit()).items == (entry,)
        row = StoredSchedule(name="s", queue="q", revision="1", next_at=at + LEASE)
        fired = ScheduleChange(name="s", expect=None, to=row, jobs=(JobRecord(id="b", type="t", queue="q"),))
        assert await new.change_schedules([fired], at) == [True]
        old.ack(old.reserve())
        assert old.prune() == 2
        assert await new.change_schedules([fired], at) == [True]
        assert (await new.due_schedules(["q"], at + LEASE)).items == (row,)
        assert await new.counts(at) == {}
        await new.close()

    asyncio.run(scenario())
    with psycopg.connect(address) as connection:
        assert connection.execute("select max(version), max(oldest) from taskharbor.meta").fetchone() == (4, 1)
    old.connection.close()
    assert mistakes(address) == []


def test_the_migration_to_number_4_waits_for_nobody(address):
    """It changes no table that another transaction may have used."""
    with psycopg.connect(address) as connection:
        connection.execute(schema_of_number(3).encode())
        connection.commit()
        connection.execute("delete from taskharbor.jobs")
        connection.execute("delete from taskharbor.history")
        assert asyncio.run(asyncio.wait_for(PostgresDriver(address).migrate(), 60)) == 3


def test_what_only_older_programs_need_is_kept_for_them(address):
    async def upgraded(dsn):
        await PostgresDriver(dsn).migrate()

    query = "select relname from pg_class where relname in ('history_sweep', 'limits', 'sweep') order by 1"
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(schema_of_number(2).encode())
        asyncio.run(upgraded(address))
        assert connection.execute(query).fetchall() == [("history_sweep",), ("limits",), ("sweep",)]
        connection.execute("drop schema taskharbor cascade")
        asyncio.run(upgraded(address))
        assert connection.execute(query).fetchall() == []


def test_a_migration_waits_for_no_open_transaction(address):
    """All other calls would wait behind it, as long as that transaction stays open."""
    with psycopg.connect(address) as connection:
        connection.execute(schema_of_number(2).encode())
        connection.commit()
        connection.execute("delete from taskharbor.jobs")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            asyncio.run(PostgresDriver(address).migrate())
        assert connection.execute("select max(version) from taskharbor.meta").fetchone() == (2,)
        connection.commit()
        assert asyncio.run(PostgresDriver(address).migrate()) == 2


def test_a_role_that_could_use_the_tables_may_use_the_new_ones(address):
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(schema_of_number(2).encode())
        connection.execute("drop role if exists clerk3")
        connection.execute("create role clerk3")
        connection.execute("grant select, insert, update, delete on all tables in schema taskharbor to clerk3")
        asyncio.run(PostgresDriver(address).migrate())
        for table in (
            "limits",
            "group_limits",
            "figures",
            "prune_place",
            "kept_place",
            "records",
            "audit",
            "schedules",
        ):
            for privilege in ("select", "insert", "update", "delete"):
                query = "select has_table_privilege('clerk3', 'taskharbor.' || %s, %s)"
                assert connection.execute(query, (table, privilege)).fetchall() == [(True,)], (table, privilege)
        connection.execute("drop owned by clerk3")
        connection.execute("drop role clerk3")


def test_a_new_schema_refuses_programs_whose_functions_it_lacks(address):
    """A schema that is created anew has the functions of one number only."""
    asyncio.run(PostgresDriver(address).migrate())
    with psycopg.connect(address) as connection:
        rows = connection.execute("select max(version), max(oldest) from taskharbor.meta").fetchall()
    assert rows == [(statement.VERSION, statement.VERSION)]


def test_every_function_has_its_version(address):
    """Also where one calls another: an old one must never reach a new one."""
    asyncio.run(PostgresDriver(address).migrate())
    with psycopg.connect(address) as connection:
        query = "select proname, prosrc from pg_proc p join pg_namespace n on n.oid = pronamespace"
        found: dict[str, str] = dict(connection.execute(f"{query} where nspname = 'taskharbor'").fetchall())
        types = connection.execute(
            "select typname from pg_type t join pg_class c on c.oid = typrelid "
            "where relkind = 'c' and typnamespace = 'taskharbor'::regnamespace"
        ).fetchall()
    assert len(found) > 40
    assert sorted(name for (name,) in types) == ["deleted_job_v4", "group_change_v4", "reserved_job_v4"]
    ending = f"_v{statement.VERSION}"
    for name, body in found.items():
        assert name.endswith(ending)
        for other in found:
            assert not re.search(rf"\b{other.removesuffix(ending)}\(", body), (
                f"{name} calls {other} without its version"
            )


def test_a_table_that_changes_under_a_prepared_statement(address):
    """`cached plan must not change result type`: it is sent again, in a transaction and outside of one."""

    async def scenario():
        driver = PostgresDriver(f"{address}?pool_size=1")
        await driver.open()
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("create table changing (one integer)")
            connection.execute("insert into changing values (1)")
            for transaction in (False, True):

                def program():
                    return (yield statement.Statement("select * from changing"))

                for _ in range(4):
                    before = await driver._run(program, transaction=transaction)
                connection.execute(f"alter table changing add column c{transaction} integer default 2".encode())
                after = await driver._run(program, transaction=transaction)
                assert len(after[0]) == len(before[0]) + 1
        await driver.close()

    asyncio.run(scenario())
