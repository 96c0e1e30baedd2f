"""The caller's own transaction: jobs are stored with its writes or not at all; a handler's writes with its ack."""

import asyncio
import logging
import sqlite3
import threading
from contextlib import asynccontextmanager
from contextvars import Context

import pytest

from taskharbor import BlockingCall
from taskharbor.drivers import (
    Ack,
    BackendUnavailable,
    Enqueued,
    InvalidJob,
    JobNotInflight,
    JobRecord,
    LeaseExpired,
    SqlDriver,
    WrongConnection,
)
from taskharbor.drivers.sqlite import SqliteDriver, connection, transaction, writer
from tests.drivers.sqlite_files import LEASE, NOW

pytestmark = pytest.mark.lane("sqlite")


def job(id, **fields):
    return JobRecord(id=id, type="t", **fields)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "app.db"


@pytest.fixture
def driver(path):
    return SqliteDriver(f"sqlite:///{path}")


@asynccontextmanager
async def opened(driver):
    await driver.open()
    try:
        yield
    finally:
        await driver.close()


def stored(path):
    connection = sqlite3.connect(path)
    try:
        return [id for (id,) in connection.execute("SELECT id FROM taskharbor_jobs ORDER BY id")]
    finally:
        connection.close()


def test_it_is_an_sql_driver(driver):
    assert isinstance(driver, SqlDriver)


@pytest.mark.parametrize("isolation", ["", "IMMEDIATE", None])
def test_commit_stores_the_job_and_rollback_does_not(driver, path, isolation):
    connection = sqlite3.connect(path, isolation_level=isolation)
    connection.row_factory = sqlite3.Row
    connection.text_factory = bytes
    for commit in (False, True):
        if isolation is None:
            connection.execute("BEGIN IMMEDIATE")
        connection.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER)")
        connection.execute("INSERT INTO orders VALUES (1)")
        assert driver.enqueue_on_sync(connection, [job("a"), job("a")], NOW) == [
            Enqueued("a", False),
            Enqueued("a", True),
        ]
        assert connection.in_transaction
        (connection.commit if commit else connection.rollback)()
    connection.close()
    assert stored(path) == ["a"]


def test_a_refused_job_leaves_the_callers_writes_alone(driver, path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE orders (id INTEGER)")
    connection.execute("INSERT INTO orders VALUES (1)")
    with pytest.raises(InvalidJob):
        driver.enqueue_on_sync(connection, [job("a"), job("b", depends_on=("nobody",))], NOW)
    connection.commit()
    assert connection.execute("SELECT count(*) FROM orders").fetchone() == (1,)
    connection.close()


def test_a_connection_that_cannot_be_shared_is_refused(driver, path, tmp_path):
    connection = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(WrongConnection, match="BEGIN IMMEDIATE"):
        driver.enqueue_on_sync(connection, [job("a")], NOW)
    connection.close()
    other = sqlite3.connect(tmp_path / "other.db")
    with pytest.raises(ValueError, match="one transaction cannot hold both"):
        driver.enqueue_on_sync(other, [job("a")], NOW)
    other.close()
    with pytest.raises(TypeError, match="give the connection itself"):
        driver.enqueue_on_sync(object(), [job("a")], NOW)
    with pytest.raises(TypeError, match="give the connection itself"):
        asyncio.run(driver.enqueue_on(object(), [job("a")], NOW))


async def test_a_snapshot_that_is_too_old_is_refused(driver, path):
    async with opened(driver):
        connection = sqlite3.connect(path, isolation_level=None, timeout=0.05)
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM taskharbor_jobs").fetchone()
        await driver.enqueue([job("first")], NOW)
        with pytest.raises(BackendUnavailable, match="since this transaction began"):
            driver.enqueue_on_sync(connection, [job("a")], NOW)
        connection.close()


async def test_a_transaction_that_has_only_begun_takes_the_lock_before_it_reads(driver, path):
    """With `autocommit=False` Python begins one at once: another writer may come between our first read and write."""
    async with opened(driver):
        connection = sqlite3.connect(path, isolation_level=None, timeout=0.05)
        other = sqlite3.connect(path, isolation_level=None, timeout=0)
        connection.execute("BEGIN")
        statements = []

        def write_elsewhere(sql):
            statements.append(sql)
            if len(statements) == 4:  # the file's name, the savepoint, what comes first, and one more
                try:
                    other.execute("CREATE TABLE IF NOT EXISTS elsewhere (id INTEGER)")
                    other.execute("INSERT INTO elsewhere VALUES (1)")
                except sqlite3.OperationalError:
                    pass  # it waits for us, as it should

        connection.set_trace_callback(write_elsewhere)
        assert driver.enqueue_on_sync(connection, [job("a")], NOW) == [Enqueued("a", False)]
        connection.execute("COMMIT")
        connection.close()
        other.close()
        assert stored(path) == ["a"]


async def test_a_waiting_worker_notices_the_callers_commit(driver, path):
    async with opened(driver):
        assert await driver.reserve(["default"], NOW, LEASE, 1) == []
        waiting = asyncio.create_task(driver.wait(["default"], 20))
        connection = sqlite3.connect(path)
        await asyncio.to_thread(lambda: None)
        driver.enqueue_on_sync(connection, [job("a")], NOW)
        connection.commit()
        connection.close()
        assert await waiting is True
        assert len(await driver.reserve(["default"], NOW, LEASE, 1)) == 1


# The handler's transaction


async def take(driver, id="a", **fields):
    await driver.enqueue([job(id, **fields)], NOW)
    (held,) = await driver.reserve(["default"], NOW, LEASE, 1, "w")
    return held


async def test_commit_applies_ack_and_writes_together(driver, path):
    async with opened(driver):
        held = await take(driver)
        shared = driver.transaction(held.lease)
        async with shared as connection:
            with connection:  # an idiom of sqlite3, which must not commit here
                connection.execute("CREATE TABLE orders (id INTEGER)")
        other = sqlite3.connect(path)
        assert other.execute("SELECT count(*) FROM sqlite_master WHERE name = 'orders'").fetchone() == (0,)
        assert await shared.commit(Ack(held.lease, b"1", (job("b"),)), NOW) is None
        assert other.execute("SELECT count(*) FROM sqlite_master WHERE name = 'orders'").fetchone() == (1,)
        other.close()
        await shared.rollback()
        assert (await driver.inspect("a", NOW)).state == "done"
        assert (await driver.inspect("b", NOW)).state == "ready"
        assert await driver.settle([Ack(held.lease, b"1")], NOW) == [None]


@pytest.mark.parametrize("how", ["expired", "cancelled"])
async def test_a_lost_lease_refuses_both(driver, path, how):
    async with opened(driver):
        held = await take(driver)
        if how == "cancelled":
            await driver.cancel(["a"], NOW)
        shared = driver.transaction_sync(held.lease)
        with shared as connection:
            connection.execute("CREATE TABLE orders (id INTEGER)")
        refused = shared.commit(Ack(held.lease), NOW + LEASE)
        assert isinstance(refused, LeaseExpired if how == "expired" else JobNotInflight)
        assert (
            await driver.database.read(lambda session: session.all("SELECT 1 FROM sqlite_master WHERE name = 'orders'"))
            == []
        )
        await driver.enqueue([job("next")], NOW)


async def test_others_wait_and_a_long_hold_is_logged(driver, monkeypatch):
    monkeypatch.setattr(transaction, "LONG_TRANSACTION_S", 0.01)
    warned = threading.Event()
    words: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            words.append(record.getMessage())
            warned.set()

    listener = Listener()
    transaction.logger.addHandler(listener)

    try:
        async with opened(driver):
            held = await take(driver)
            shared = driver.transaction(held.lease)
            async with shared:
                waiting = asyncio.create_task(driver.enqueue([job("b")], NOW), context=Context())
                assert (await asyncio.wait([waiting], timeout=0.05))[1] == {waiting}
                assert (await driver.inspect("a", NOW)).state == "inflight"
                assert await asyncio.to_thread(warned.wait, 20)
            await shared.rollback()
            assert await waiting == [Enqueued("b", False)]
            assert "job a has held the write lock" in words[0]
    finally:
        transaction.logger.removeHandler(listener)


async def test_waiting_for_oneself_is_refused_at_once(driver):
    async with opened(driver):
        held = await take(driver)
        shared = driver.transaction(held.lease)
        async with shared:
            with pytest.raises(BlockingCall, match=r"inside ctx.transaction\(\) this call would wait"):
                await driver.enqueue([job("b")], NOW)
        await shared.rollback()
        await driver.enqueue([job("b")], NOW)


async def test_cancelled_while_it_waits_for_the_lock(driver):
    async with opened(driver):
        held = await take(driver)
        first, second = driver.transaction(held.lease), driver.transaction(held.lease)
        async with first:
            entering = asyncio.create_task(second.__aenter__())
            assert (await asyncio.wait([entering], timeout=0.05))[1] == {entering}
            entering.cancel()
            await asyncio.gather(entering, return_exceptions=True)
        await first.rollback()
        await driver.enqueue([job("b")], NOW)  # the lock came back


async def test_busy_because_of_a_foreign_writer_is_waited_for(driver, path, monkeypatch):
    monkeypatch.setattr(connection, "BUSY_MS", 50)
    monkeypatch.setattr(writer, "FOREIGN_WRITER_WAIT_MS", 5)
    async with opened(driver):
        foreign = sqlite3.connect(path, isolation_level=None)
        foreign.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(driver.enqueue([job("a")], NOW))
        assert (await asyncio.wait([waiting], timeout=0.3))[1] == {waiting}
        foreign.execute("COMMIT")
        foreign.close()
        assert await waiting == [Enqueued("a", False)]
