"""`harbor.once`: on every kind of connection, and what becomes of a key with its transaction."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from django.db import transaction

from taskharbor import Harbor, JobContext, WrongConnection
from taskharbor.drivers.connections import ASYNCHRONOUS
from tests.drivers.postgres_ways import Way
from tests.outbox.ways import SQLITE, emptied, every_way, opened

HARBOR = Harbor("memory://")


@contextlib.asynccontextmanager
async def entered(way: Way, key: str) -> AsyncIterator[bool]:
    if way.kind in ASYNCHRONOUS:
        async with HARBOR.once(way.connection, key) as first:
            yield first
    else:
        with HARBOR.once(way.connection, key) as first:
            yield first


async def written(way: Way, key: str, n: int, *, fails: bool = False) -> bool:
    """Write a row if the key is new; whether it was."""
    async with entered(way, key) as first:
        if first:
            await way.write(f"insert into mine values ({n})")
        if fails:
            raise ZeroDivisionError
    return first


async def made(way: Way) -> None:
    if way.kind in ASYNCHRONOUS:
        await HARBOR.outbox.acreate(way.connection)
        await HARBOR.outbox.acreate(way.connection)
    else:
        HARBOR.outbox.create(way.connection)
        HARBOR.outbox.create(way.connection)  # again: nothing happens
    await way.write("create table mine (n integer)")
    await way.commit()


@every_way
async def test_a_key_stands_exactly_if_its_transaction_does(way: str, tmp_path: Any) -> None:
    async with opened(way, tmp_path) as mine:
        with pytest.raises(WrongConnection, match=r"no table taskharbor_once; make it with harbor\.outbox\.create"):
            await written(mine, "a", 1)
        await made(mine)  # the refusal has not spoilt the transaction
        assert await written(mine, "a", 1)
        assert not await written(mine, "a", 2)
        await mine.commit()
        assert not await written(mine, "a", 3)
        assert await written(mine, "b", 4)
        await mine.rollback()
        assert await written(mine, "b", 5)
        await mine.commit()
        # A block that raises takes its key and its rows along, and leaves the transaction usable.
        with pytest.raises(ZeroDivisionError):
            await written(mine, "c", 6, fails=True)
        assert await written(mine, "d", 7)
        await mine.commit()
        assert await written(mine, "c", 8)
        # What follows a known key is the caller's own.
        with pytest.raises(ZeroDivisionError):
            await written(mine, "c", 9, fails=True)
        await mine.commit()
        assert await rows(mine) == [1, 5, 7, 8]
        # A key that the database refuses, as when it gives up waiting for another transaction, leaves it usable too.
        await mine.write(REFUSE_ON_SQLITE if way in SQLITE else REFUSE)
        with pytest.raises(Exception, match="refused"):
            await written(mine, "refused", 9)
        assert await written(mine, "e", 10)
        await mine.commit()
        assert await rows(mine) == [1, 5, 7, 8, 10]


REFUSE = "alter table taskharbor_once add constraint refused check (key <> 'refused')"
REFUSE_ON_SQLITE = (
    "create trigger refusing before insert on taskharbor_once when new.key = 'refused' "
    "begin select raise(abort, 'refused'); end"
)


async def test_django_knows_that_a_block_was_undone() -> None:
    async with opened("Django", None) as mine:
        await made(mine)
        ran: list[str] = []

        def note(what: str) -> None:
            transaction.on_commit(lambda: ran.append(what), using=mine.connection.alias)

        def fail() -> None:
            with HARBOR.once(mine.connection, "a"):
                note("undone")
                mine.connection.needs_rollback = True  # as a save() that failed leaves it
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        with HARBOR.once(mine.connection, "a") as first:
            assert first
            note("kept")
        with (
            pytest.raises(transaction.TransactionManagementError, match="went on after an error"),
            HARBOR.once(mine.connection, "b"),
        ):
            mine.connection.needs_rollback = True
        assert await written(mine, "b", 1)
        await mine.commit()
        assert ran == ["kept"]


async def rows(way: Way) -> list[int]:
    from taskharbor.drivers.within import Caller, within, within_sync

    async def read(caller: Caller) -> list[int]:
        return [n for (n,) in await caller.ask("select n from mine order by n", ())]

    return await within(way.connection, read) if way.kind in ASYNCHRONOUS else within_sync(way.connection, read)


def test_of_two_transactions_with_one_key_the_second_waits_for_the_end_of_the_first() -> None:
    address = emptied()
    with psycopg.connect(address) as one, psycopg.connect(address) as two:
        HARBOR.outbox.create(one)
        one.commit()
        found: list[bool] = []

        def second(key: str) -> None:
            with HARBOR.once(two, key) as first:
                found.append(first)

        for ends, key in ((one.rollback, "undone"), (one.commit, "kept")):
            with HARBOR.once(one, key) as first:
                assert first
            found.clear()
            waiting = threading.Thread(target=second, args=(key,))
            waiting.start()
            _until_waiting(address, two.info.backend_pid)
            assert found == []
            ends()
            waiting.join(60)
            two.rollback()
            assert found == [key == "undone"]


def _until_waiting(address: str, pid: int) -> None:
    with psycopg.connect(address, autocommit=True) as watching:
        while not watching.execute(
            "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'", (pid,)
        ).fetchone():
            pass


def test_the_row_names_the_job_that_wrote_it(tmp_path: Any) -> None:
    harbor = Harbor(f"sqlite:///{tmp_path}/jobs.db")
    database = sqlite3.connect(tmp_path / "app.db")
    harbor.outbox.create(database)

    @harbor.task
    async def charge(ctx: JobContext) -> None:
        with database, harbor.once(database, ctx.job.id) as first:
            assert first

    harbor.once(database, "so that workers note their jobs")
    job = charge.enqueue()
    harbor.worker().run(until_empty=True)
    job.result()
    assert database.execute("select key, job_id, fence, at > 0 from taskharbor_once").fetchall() == [
        (job.id, job.id, 1, 1)
    ]
    database.close()
    harbor.close()


@pytest.mark.parametrize(
    ("key", "expected"),
    [(7, "expected text, got int"), ("", "got 0;"), ("x" * 513, "got 513"), ("a\0b", "NUL"), ("\ud800", "lone")],
)
def test_a_bad_key_is_refused_at_once(key: Any, expected: str) -> None:
    with pytest.raises((TypeError, ValueError), match=expected):
        HARBOR.once(None, key)


def test_a_connection_of_another_colour_or_kind_is_refused() -> None:
    engine = psycopg.AsyncConnection.__new__(psycopg.AsyncConnection)
    with pytest.raises(TypeError, match="expected a synchronous one here"), HARBOR.once(engine, "a"):
        pass
    with pytest.raises(TypeError, match="expected one of psycopg"), HARBOR.once(object(), "a"):
        pass
    with (
        contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as alone,
        pytest.raises(WrongConnection, match="autocommit"),
        HARBOR.once(alone, "a"),
    ):
        pass


def test_sqlite3_in_a_coroutine() -> None:
    async def live() -> None:
        with contextlib.closing(sqlite3.connect(":memory:")) as database:
            await HARBOR.outbox.acreate(database)
            async with HARBOR.once(database, "a") as first:
                assert first

    asyncio.run(live())
