"""One file and several owners: forks inside transactions, lost locks, and second names. Nothing that was acknowledged
is lost, and no process waits for itself."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from contextvars import Context
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from taskharbor.drivers import Ack, BackendUnavailable, Enqueued, JobRecord
from taskharbor.drivers.sqlite import SqliteDriver
from tests.drivers import sqlite_files

pytestmark = pytest.mark.lane("sqlite")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=60)
LARGE = b"x" * 10_000  # which the writer's thread writes


def job(id, **fields):
    return JobRecord(id=id, type="t", **fields)


opened = partial(sqlite_files.opened, synchronous="normal")


async def taken(driver):
    await driver.enqueue([job("a")], NOW)
    (held,) = await driver.reserve(["default"], NOW, LEASE, 1)
    return held.lease


async def until_it_waits(driver):
    """Wait until the writer's thread has a call in hand."""
    while not driver.database.writer.thread._is_busy:
        await asyncio.sleep(0)


def forked(work):
    """Fork a child that does this in a thread and writes the outcome in one line; returns the child and its line."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            outcomes = []
            thread = threading.Thread(target=lambda: outcomes.append(work()))
            thread.start()
            thread.join()
            os.write(writing, str(outcomes).encode())
        finally:
            os._exit(0)
    os.close(writing)
    return child, reading


def said(child, reading):
    with open(reading, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)
    return text


def uses(path):
    """What a process finds that opens the file and stores a job."""

    async def live():
        async with opened(path) as driver:
            await driver.enqueue([job("child")], NOW)

    try:
        asyncio.run(live())
    except BackendUnavailable as error:
        return str(error)
    return "stored"


def stored(path):
    """The ids in the file as another process reads them; this one may have lost the right to."""
    text = (
        "import sqlite3, sys; file = sqlite3.connect(sys.argv[1]);"
        "assert file.execute('PRAGMA integrity_check').fetchone() == ('ok',);"
        "print(*(id for (id,) in file.execute('SELECT id FROM taskharbor_jobs ORDER BY id')))"
    )
    command = [sys.executable, "-c", text, str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split()


# Forks


@pytest.mark.parametrize("coroutine", [True, False])
@pytest.mark.parametrize("wait", [True, False])
def test_a_fork_inside_a_transaction_does_not_wait(tmp_path, coroutine, wait):
    """Neither for the call that waits for the transaction, nor for its turn; and the child gets an error at once."""
    path = tmp_path / "jobs.db"

    async def live():
        async with opened(path) as driver:
            lease = await taken(driver)
            shared: Any = driver.transaction(lease) if coroutine else driver.transaction_sync(lease)
            connection = await shared.__aenter__() if coroutine else shared.__enter__()
            connection.execute("CREATE TABLE orders (id INTEGER)")
            another = Context()  # what the transaction's own task starts would be refused
            waiting = asyncio.create_task(driver.enqueue([job("b", payload=LARGE)], NOW), context=another)
            await until_it_waits(driver)
            child = forked(lambda: uses(path))
            reported = said(*child) if wait else None
            refused = shared.commit(Ack(lease), NOW)
            assert (await refused if coroutine else refused) is None
            assert await waiting == [Enqueued("b", False)]
            assert "forked while a transaction of a handler" in (reported or said(*child))

    asyncio.run(live())
    assert stored(path) == ["a", "b"]


def test_a_child_of_a_fork_inside_a_transaction_may_end_as_it_likes(tmp_path):
    """It uses the connection, leaves the block, rolls back, collects and exits: the parent's transaction is whole."""
    path = tmp_path / "jobs.db"

    async def live():
        async with opened(path) as driver:
            lease = await taken(driver)
            shared = driver.transaction_sync(lease)
            with shared as connection:
                connection.execute("CREATE TABLE orders (id INTEGER)")
                connection.execute("INSERT INTO orders VALUES (1)")

                def misuses():
                    with pytest.raises(sqlite3.InterfaceError, match="was forked while a transaction"):
                        connection.execute("INSERT INTO orders VALUES (2)")
                    shared.abort("it is the child's")
                    shared.rollback()
                    return "rolled back"

                assert said(*forked(misuses)) == "['rolled back']"
                connection.execute("INSERT INTO orders VALUES (3)")
            assert shared.commit(Ack(lease), NOW) is None
            assert await driver.database.read(lambda session: session.all("SELECT id FROM orders")) == [(1,), (3,)]

    asyncio.run(live())
    assert stored(path) == ["a"]


def test_a_fork_inside_the_applications_own_transaction_does_not_wait(tmp_path):
    path = tmp_path / "jobs.db"

    async def live():
        async with opened(path) as driver:
            own = sqlite3.connect(path, isolation_level=None)
            own.execute("BEGIN IMMEDIATE")
            waiting = asyncio.create_task(driver.enqueue([job("b", payload=LARGE)], NOW))
            await until_it_waits(driver)
            assert said(*forked(lambda: "alive")) == "['alive']"
            own.execute("COMMIT")
            own.close()
            assert await waiting == [Enqueued("b", False)]

    asyncio.run(live())
    assert stored(path) == ["b"]


def test_after_the_transaction_a_fork_may_use_the_file(tmp_path):
    path = tmp_path / "jobs.db"

    async def live():
        async with opened(path) as driver:
            lease = await taken(driver)
            shared = driver.transaction_sync(lease)
            with shared:
                pass
            assert shared.commit(Ack(lease), NOW) is None
            assert said(*forked(lambda: uses(path))) == "['stored']"

    asyncio.run(live())
    assert stored(path) == ["a", "child"]


# Lost locks


def copied(path):
    shutil.copy(path, f"{path}.copy")  # a process that closes a file loses all its locks on it
    stored(path)  # which takes itself for the last process that uses the file, and removes the log


def removed(path):
    os.unlink(f"{path}-wal")
    os.unlink(f"{path}-shm")


@pytest.mark.parametrize("how", [copied, removed])
@pytest.mark.parametrize("how_written", ["at once", "by the thread", "in a transaction"])
def test_a_commit_to_a_removed_wal_file_is_not_acknowledged(tmp_path, how, how_written):
    """Once a process has lost its locks, SQLite goes on in a file that no other process sees; the driver reports it."""
    path = tmp_path / "jobs.db"

    async def live():
        async with opened(path) as driver:
            lease = await taken(driver)
            shared = driver.transaction_sync(lease)
            if how_written == "in a transaction":
                with shared as connection:
                    connection.execute("CREATE TABLE orders (id INTEGER)")
                written: Any = partial(asyncio.to_thread, shared.commit, Ack(lease), NOW)
            else:
                payload = LARGE if how_written == "by the thread" else b""
                written = partial(driver.enqueue, [job("b", payload=payload)], NOW)
            how(path)
            with pytest.raises(BackendUnavailable, match="-wal file was removed while this process used it") as refused:
                await written()
            assert refused.value.lasting
            for call in (driver.counts(NOW), driver.enqueue([job("c")], NOW), driver.sibling().open()):
                with pytest.raises(BackendUnavailable, match="restart it"):
                    await call

    asyncio.run(live())
    if how is copied:
        assert stored(path) == ["a"]


def test_a_file_that_is_replaced_under_a_commit_is_used_by_the_next_call(tmp_path, monkeypatch):
    path = tmp_path / "jobs.db"

    async def live():
        async with opened(path) as driver:
            await driver.enqueue([job("a")], NOW)

            def replaced(session):
                session.execute("UPDATE taskharbor_meta SET number = number + 1")
                os.replace(path, tmp_path / "old.db")
                os.replace(f"{path}-wal", tmp_path / "old.db-wal")
                with closing(sqlite3.connect(path)) as file:
                    file.execute("PRAGMA user_version = 7")
                return "written"

            with pytest.raises(BackendUnavailable, match="was replaced while it was written to"):
                await driver.database.write(replaced)
            assert await driver.enqueue([job("b")], NOW) == [Enqueued("b", False)]

    asyncio.run(live())
    assert stored(path) == ["b"]


# Second names


async def test_a_hard_link_is_refused(tmp_path):
    path, other = tmp_path / "jobs.db", tmp_path / "other.db"
    async with opened(path) as driver:
        await driver.enqueue([job("a")], NOW)
        os.link(path, other)
        for name in (path, other):
            for way in ("open", "open_existing"):
                with pytest.raises(BackendUnavailable, match="has 2 names") as refused:
                    await getattr(SqliteDriver(f"sqlite:///{name}"), way)()
                assert refused.value.lasting
        await driver.enqueue([job("b")], NOW)  # a process that has it open goes on: no other can open it
    other.unlink()
    async with opened(path) as driver:
        assert await driver.counts(NOW) == {"default": {"ready": 2}}
