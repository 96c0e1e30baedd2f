"""A handler's transaction that is ended from outside, whatever the handler is doing: the file is free at once, nothing
that was written stays, and what the handler does later is refused with the reason."""

import asyncio
import contextlib
import fcntl
import os
import sqlite3
import threading
from functools import partial
from typing import Any

import pytest

from taskharbor.drivers import Ack, JobRecord, TransactionFailed
from taskharbor.drivers.sqlite import SqliteDriver
from tests.drivers.sqlite_files import LEASE, NOW

pytestmark = pytest.mark.lane("sqlite")
LONG = 60.0
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
ROWS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"


class Step:
    """What a handler is in the middle of: `begun` once it is, and what it receives when it goes on."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def wait(self) -> None:
        self.begun.set()
        assert self.go_on.wait(LONG)


def does_nothing(connection: Any, step: Step) -> None:
    step.wait()
    connection.execute("INSERT INTO orders VALUES (2)")


def holds_a_cursor(connection: Any, step: Step) -> None:
    cursor = connection.cursor()
    cursor.execute(ROWS)
    assert cursor.fetchone() == (1,)
    step.wait()
    cursor.fetchone()


def runs_a_long_statement(connection: Any, step: Step) -> None:
    step.begun.set()
    connection.execute(ENDLESS).fetchone()


def fetches(connection: Any, step: Step) -> None:
    rows = connection.execute(ROWS)
    for number, _ in enumerate(rows):
        if number == 1000:
            step.begun.set()


def fetches_with_a_cursor_of_its_own(connection: Any, step: Step) -> None:
    class Own(sqlite3.Cursor):
        pass

    cursor = connection.cursor(Own)
    cursor.execute("SELECT 1")
    step.wait()
    cursor.execute("INSERT INTO orders VALUES (2)")


def waits_for_rows_to_write(connection: Any, step: Step) -> None:
    def rows():
        yield (2,)
        step.wait()
        yield (3,)

    connection.executemany("INSERT INTO orders VALUES (?)", rows())


def writes_in_another_thread(connection: Any, step: Step) -> None:
    refused: list[BaseException] = []

    def write() -> None:
        try:
            while True:
                connection.execute("INSERT INTO orders VALUES (2)")
                step.begun.set()
        except sqlite3.Error as error:
            refused.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    thread.join(LONG)
    raise refused[0]


def commits(connection: Any, step: Step) -> None:
    with connection:
        connection.execute("INSERT INTO orders VALUES (2)")
    step.wait()
    connection.commit()


DOING = [
    does_nothing,
    holds_a_cursor,
    runs_a_long_statement,
    fetches,
    fetches_with_a_cursor_of_its_own,
    waits_for_rows_to_write,
    writes_in_another_thread,
    commits,
]


@contextlib.asynccontextmanager
async def opened(path: Any) -> Any:
    driver = SqliteDriver(f"sqlite:///{path}?synchronous=normal")
    await driver.open()
    try:
        async with asyncio.timeout(LONG):
            await driver.database.write(
                lambda session: session.execute("CREATE TABLE IF NOT EXISTS orders (number INTEGER)")
            )
            await driver.enqueue([JobRecord(id="a", type="t")], NOW)
            yield driver, (await driver.reserve(["default"], NOW, LEASE, 1))[0].lease
    finally:
        await driver.close()


async def written(driver: SqliteDriver) -> list[Any]:
    rows: list[Any] = await driver.database.read(lambda session: session.all("SELECT number FROM orders"))
    return rows


@pytest.mark.parametrize("doing", DOING)
async def test_a_plain_function(tmp_path, doing):
    async with opened(tmp_path / "jobs.db") as (driver, lease):
        transaction, step = driver.transaction_sync(lease), Step()

        def handler():
            with transaction as connection:
                connection.execute("INSERT INTO orders VALUES (1)")
                doing(connection, step)

        running = asyncio.create_task(asyncio.to_thread(handler))
        assert await asyncio.to_thread(step.begun.wait, LONG)
        await asyncio.to_thread(transaction.abort, "it took longer than its timeout of 1 s")
        await driver.fail(lease, NOW, "timed out", attempts=1)  # nothing is in the way
        step.go_on.set()
        with pytest.raises(sqlite3.Error) as refused:
            await running
        if doing is not fetches_with_a_cursor_of_its_own:
            assert isinstance(refused.value, sqlite3.InterfaceError)
            assert "job a was rolled back, because it took longer than its timeout of 1 s" in str(refused.value)
        assert isinstance(transaction.commit(Ack(lease), NOW), TransactionFailed)
        transaction.rollback()
        transaction.abort("again")
        assert await written(driver) == []
        assert (await driver.inspect("a", NOW)).state == "dlq"


@pytest.mark.parametrize("doing", [does_nothing, holds_a_cursor, fetches_with_a_cursor_of_its_own, commits])
async def test_a_coroutine(tmp_path, doing):
    async with opened(tmp_path / "jobs.db") as (driver, lease):
        transaction, begun, go_on = driver.transaction(lease), asyncio.Event(), asyncio.Event()

        async def handler():
            async with transaction as connection:
                connection.execute("INSERT INTO orders VALUES (1)")
                step = Step()
                step.go_on.set()
                begun.set()
                await go_on.wait()
                doing(connection, step)

        running = asyncio.create_task(handler())
        await begun.wait()
        await transaction.abort("it was cancelled and did not end")
        await driver.fail(lease, NOW, "timed out", attempts=1)
        go_on.set()
        with pytest.raises(sqlite3.InterfaceError, match="because it was cancelled and did not end"):
            await running
        await transaction.rollback()
        assert await written(driver) == []


@pytest.mark.parametrize("behind", ["another transaction", "another process"])
@pytest.mark.parametrize("coroutine", [True, False])
async def test_while_it_waits_to_begin(tmp_path, behind, coroutine):
    """It never begins, and its place in the line is given up."""
    async with opened(tmp_path / "jobs.db") as (driver, lease):
        if behind == "another transaction":
            first = driver.transaction_sync(lease)
            await asyncio.to_thread(first.__enter__)
            free = first.rollback
        else:
            file = os.open(tmp_path / "jobs.db-lock", os.O_RDWR)
            fcntl.flock(file, fcntl.LOCK_EX)
            free = partial(os.close, file)
        transaction: Any = driver.transaction(lease) if coroutine else driver.transaction_sync(lease)
        if coroutine:
            entering = asyncio.create_task(transaction.__aenter__())
        else:
            entering = asyncio.create_task(asyncio.to_thread(transaction.__enter__))
        turns = driver.database.writer.turns
        while not (turns._line or (behind == "another process" and turns._is_taken)):
            await asyncio.sleep(0)
        if coroutine:
            aborting = asyncio.create_task(transaction.abort("it is over"))
            entering.cancel()  # as core does before
        else:
            aborting = asyncio.create_task(asyncio.to_thread(transaction.abort, "it is over"))
        if behind == "another transaction" or not coroutine:
            await aborting
        free()
        await aborting
        with pytest.raises((sqlite3.InterfaceError, asyncio.CancelledError)):
            await entering
        await driver.enqueue([JobRecord(id="b", type="t")], NOW)
        with pytest.raises(sqlite3.InterfaceError, match="because it is over"):
            await (transaction.__aenter__() if coroutine else asyncio.to_thread(transaction.__enter__))
        await driver.enqueue([JobRecord(id="c", type="t")], NOW)


async def test_a_cursor_that_the_handler_keeps_does_not_keep_the_lock(tmp_path):
    """Closing alone would leave the transaction open for as long as one of its statements lives."""
    kept: list[Any] = []
    async with opened(tmp_path / "jobs.db") as (driver, lease):
        transaction = driver.transaction_sync(lease)
        with transaction as connection:
            connection.execute("INSERT INTO orders VALUES (1)")
            kept.append(connection.execute(ROWS))
            kept[0].fetchone()
        transaction.rollback()
        await driver.enqueue([JobRecord(id="b", type="t")], NOW)
        other = sqlite3.connect(tmp_path / "jobs.db", timeout=0, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        other.close()
        assert await written(driver) == []


async def test_a_commit_that_came_first_stays(tmp_path):
    async with opened(tmp_path / "jobs.db") as (driver, lease):
        transaction = driver.transaction_sync(lease)
        with transaction as connection:
            connection.execute("INSERT INTO orders VALUES (1)")
        assert await asyncio.to_thread(partial(transaction.commit, Ack(lease), NOW)) is None
        transaction.abort("too late")
        assert await written(driver) == [(1,)]
