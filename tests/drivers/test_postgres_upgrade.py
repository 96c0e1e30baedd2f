"""Upgrades: old and new programs use one schema side by side, as long as the schema allows it."""

import asyncio
import contextlib
import re
import subprocess
import sys
from datetime import timedelta

import psycopg
import pytest

from taskharbor.drivers import (
    Ack,
    DriverError,
    Fail,
    JobRecord,
    Retry,
)
from taskharbor.drivers.postgres import PostgresDriver, statement
from tests.drivers.postgres_newer_schema import be_newer
from tests.drivers.postgres_recount import mistakes
from tests.servers import postgres

pytestmark = pytest.mark.lane("postgres")
LEASE = timedelta(seconds=60)


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
            with pytest.raises(DriverError, match=r"for programs that know number 2 or later; this version .* knows 1"):
                asyncio.run(opened(address + query))
    with psycopg.connect(address) as connection:
        query = "select distinct substring(proname from '_v[0-9]+$') from pg_proc p join pg_namespace n on "
        found = connection.execute(f"{query} n.oid = pronamespace where nspname = 'taskharbor'").fetchall()
        assert found == [("_v2",)], "the functions of the older version are gone"


def test_a_migration_waits_for_no_open_transaction(address, monkeypatch):
    """All other calls would wait behind it, as long as that transaction stays open."""
    asyncio.run(PostgresDriver(address).migrate())
    before = statement.VERSION
    be_newer(monkeypatch)
    with psycopg.connect(address) as connection:
        connection.execute("delete from taskharbor.jobs")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            asyncio.run(PostgresDriver(address).migrate())
        assert connection.execute("select max(version) from taskharbor.meta").fetchone() == (before,)
        connection.commit()
        assert asyncio.run(PostgresDriver(address).migrate()) == before


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
    assert sorted(name for (name,) in types) == ["deleted_job_v1", "group_change_v1", "reserved_job_v1"]
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
