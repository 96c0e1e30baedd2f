"""Which thread writes and syncs: small calls at once, one sync for all."""

import asyncio
import errno
import math
import shutil
import sqlite3
import threading
from functools import partial

import pytest

from taskharbor.drivers import Ack, BackendUnavailable, Enqueued, JobRecord
from taskharbor.drivers.sqlite import wal, writer
from tests.drivers.sqlite_files import LEASE, NOW, on, opened, opened_driver

pytestmark = pytest.mark.lane("sqlite")
driver = opened_driver


def job(id, **fields):
    return JobRecord(id=id, type="t", **fields)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs.db"


async def ids(driver):
    return {item.job.id for item in (await driver.list(now=NOW)).items}


class Disk:
    """Stands for fdatasync: counts, waits while it is stopped, fails with `error`."""

    def __init__(self, monkeypatch):
        self.syncs = 0
        self.error = None
        self.goes = threading.Event()
        self.goes.set()
        self.asked = threading.Semaphore(0)
        monkeypatch.setattr(wal, "sync_file", self.sync)

    def sync(self, file):
        self.asked.release()
        assert self.goes.wait(60)
        self.syncs += 1
        if self.error is not None:
            raise OSError(self.error, "of the disk")

    async def is_asked(self):
        assert await asyncio.to_thread(self.asked.acquire, True, 60)


async def test_what_is_acknowledged_is_on_the_disk_and_reserves_do_not_wait_for_it(path, monkeypatch):
    disk = Disk(monkeypatch)
    async with opened(path) as driver:
        await driver.enqueue([job("a"), job("b")], NOW)
        assert disk.syncs == 1
        await disk.is_asked()
        disk.goes.clear()
        (held,) = await driver.reserve(["default"], NOW, LEASE, 1, "w")
        settling = asyncio.create_task(driver.settle([Ack(held.lease)], NOW))
        await disk.is_asked()
        adding = [asyncio.create_task(driver.enqueue([job(f"j{number}")], NOW)) for number in range(5)]
        many = asyncio.create_task(driver.enqueue([job(f"k{number}") for number in range(500)], NOW))
        assert [item.job.id for item in await driver.reserve(["default"], NOW, LEASE, 1, "w")] == ["b"]
        while (await driver.counts(NOW))["default"].get("ready", 0) < 505:  # all of it can be seen
            await asyncio.sleep(0)
        assert not any(task.done() for task in (settling, many, *adding))
        disk.goes.set()
        assert await settling == [None]
        assert await asyncio.gather(*adding) == [[Enqueued(f"j{number}", False)] for number in range(5)]
        await many
        # The one that stood still, and one for all that had gathered; a call that comes late may have one of its own.
        assert disk.syncs in (3, 4)


async def test_a_known_job_is_acknowledged_when_it_is_on_the_disk_too(path, monkeypatch):
    """The call that stored it may still be waiting for that."""
    disk = Disk(monkeypatch)
    async with opened(path) as driver:
        for existed in (False, True):
            before = disk.syncs
            assert await driver.enqueue([job("a")], NOW) == [Enqueued("a", existed)]
            assert disk.syncs == before + 1


async def test_a_power_cut_leaves_what_was_acknowledged(path, monkeypatch, tmp_path):
    """What a sync has not seen is gone then: here, all that was written after the last one."""

    def keep(file):
        for end in ("", "-wal"):
            shutil.copy(f"{path}{end}", f"{tmp_path}/left.db{end}")

    monkeypatch.setattr(wal, "sync_file", keep)

    def left():
        connection = sqlite3.connect(tmp_path / "left.db")
        rows = dict(connection.execute("SELECT id, state FROM taskharbor_jobs"))
        connection.close()
        return rows

    async with opened(path) as driver:
        await driver.enqueue([job("a"), job("b")], NOW)
        assert left() == {"a": 1, "b": 1}
        held = await driver.reserve(["default"], NOW, LEASE, 2)
        assert left() == {"a": 1, "b": 1}  # a lease need not survive
        assert await driver.settle([Ack(held[0].lease)], NOW) == [None]
        assert left() == {"a": 3, "b": 2}
        await driver.enqueue([job(f"j{number}") for number in range(200)], NOW)
        assert await driver.cancel(["b"], NOW) == [None]
        assert left() == {"a": 3, "b": 5} | {f"j{number}": 1 for number in range(200)}


def test_synchronous_normal_waits_for_no_disk(path, monkeypatch):
    disk = Disk(monkeypatch)
    on(path, lambda driver: driver.enqueue([job("a")], NOW), synchronous="normal")
    assert disk.syncs == 0


async def test_closing_waits_for_the_disk(path, monkeypatch):
    disk = Disk(monkeypatch)
    disk.goes.clear()
    async with opened(path) as driver:
        adding = asyncio.create_task(driver.enqueue([job("a")], NOW))
        await disk.is_asked()
        closing = asyncio.create_task(driver.close())
        assert (await asyncio.wait([adding, closing], timeout=0.05))[1] == {adding, closing}
        disk.goes.set()
        assert await adding == [Enqueued("a", False)]
        await closing


async def test_what_could_not_be_synced_goes_into_the_database_before_anything_is_acknowledged(path, monkeypatch):
    """A second fdatasync may say that all is well when the first has dropped what it could not write."""
    disk = Disk(monkeypatch)
    async with opened(path) as driver:
        disk.error = errno.EIO
        with pytest.raises(BackendUnavailable, match="of the disk"):
            await driver.enqueue([job("a")], NOW)
        disk.error = None
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM taskharbor_jobs").fetchone()
        await driver.reserve(["default"], NOW, LEASE, 1)  # more than the reader sees: it cannot all be moved
        with pytest.raises(BackendUnavailable, match="a sync of its -wal file has failed"):
            await driver.enqueue([job("b")], NOW)
        reader.close()
        assert await driver.enqueue([job("b")], NOW) == [Enqueued("b", True)]
        pages = path.read_bytes()
        assert b"default" in pages
        assert await driver.enqueue([job("c")], NOW) == [Enqueued("c", False)]


# Which thread writes


def thread(session):
    return threading.current_thread().name


async def test_small_calls_run_on_the_thread_that_makes_them(path, monkeypatch):
    monkeypatch.setattr(writer, "INLINE_BUDGET_S", 60.0)
    async with opened(path) as driver:
        here = threading.current_thread().name
        assert await driver.database.write(thread, durable=False, inline=True) == here
        assert await driver.database.write(thread, durable=False) == "taskharbor-sqlite-writer"
        driver.database.writer.take_turn()  # another writer has the turn: this thread does not wait for it
        waiting = asyncio.create_task(driver.database.write(thread, durable=False, inline=True))
        behind = asyncio.create_task(driver.database.write(thread, durable=False, inline=True))
        assert (await asyncio.wait([waiting, behind], timeout=0.05))[1] == {waiting, behind}
        driver.database.writer.end_turn()
        assert [await waiting, await behind] == ["taskharbor-sqlite-writer"] * 2


async def test_the_first_commit_of_a_wal_file_is_the_writer_threads(path, monkeypatch):
    monkeypatch.setattr(writer, "INLINE_BUDGET_S", 60.0)
    on(path, lambda driver: driver.enqueue([job("a")], NOW))  # the last to close the file removes its -wal file

    def writes(session):
        session.execute("UPDATE taskharbor_meta SET number = number + 1")
        return thread(session)

    async with opened(path) as driver:
        assert await driver.database.write(writes, durable=False, inline=True) == "taskharbor-sqlite-writer"
        assert await driver.database.write(writes, durable=False, inline=True) == threading.current_thread().name


async def test_after_a_slow_call_the_writer_thread_does_the_next(path, monkeypatch):
    monkeypatch.setattr(writer, "INLINE_BUDGET_S", 0.0)
    monkeypatch.setattr(writer, "INLINE_PAUSE_S", 3600.0)
    async with opened(path) as driver:
        assert await driver.database.write(thread, durable=False, inline=True) == threading.current_thread().name
        assert await driver.database.write(thread, durable=False, inline=True) == "taskharbor-sqlite-writer"


async def test_a_call_that_fails_at_once_leaves_nothing_behind(driver):
    def fails(session):
        session.execute("UPDATE taskharbor_meta SET number = 1000")
        raise RuntimeError("of the call")

    with pytest.raises(RuntimeError, match="of the call"):
        await driver.database.write(fails, inline=True)
    await driver.enqueue([job("a")], NOW)
    assert await driver.database.read(lambda session: session.one("SELECT num FROM taskharbor_jobs")) == (1,)


# On which thread a coroutine's enqueue syncs


class Clock:
    """Stands for the module `time` where the driver measures a sync."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


class TimedDisk:
    """Stands for fdatasync: each sync takes `takes` seconds of the clock. `threads` are those that called it."""

    def __init__(self, monkeypatch, takes=0.001):
        self.takes = takes
        self.clock = Clock()
        self.threads = []
        monkeypatch.setattr(wal, "sync_file", self.sync)
        monkeypatch.setattr(wal, "time", self.clock)
        monkeypatch.setattr(writer, "INLINE_BUDGET_S", 60.0)

    def sync(self, file):
        self.threads.append(threading.current_thread().name)
        self.clock.now += self.takes


SYNC_THREAD = "taskharbor-sqlite-sync"


async def test_a_disk_that_becomes_slow_is_left_to_the_sync_thread(path, monkeypatch):
    """One slow sync on the event loop's thread is enough; the thread does the next ones for fifty times as long."""
    disk = TimedDisk(monkeypatch)
    async with opened(path) as driver:
        loop_thread = threading.current_thread().name

        async def enqueue(id):
            await driver.enqueue([job(id)], NOW)
            return disk.threads[-1]

        assert await enqueue("unknown disk") == SYNC_THREAD
        assert await enqueue("fast disk") == loop_thread
        disk.takes = 0.5
        assert await enqueue("becomes slow") == loop_thread
        assert await enqueue("known as slow") == SYNC_THREAD
        disk.clock.now += 24.9
        disk.takes = 0.001
        assert await enqueue("fast again, not tried yet") == SYNC_THREAD
        disk.clock.now += 0.1
        assert await enqueue("tried again") == loop_thread


async def test_a_slow_sync_of_a_blocking_call_counts_too(path, monkeypatch):
    disk = TimedDisk(monkeypatch)
    async with opened(path) as driver:
        await driver.enqueue([job("a")], NOW)
        disk.takes = 0.5
        await asyncio.to_thread(driver.database.write_here, lambda session: None, math.inf)
        await driver.enqueue([job("b")], NOW)
        assert disk.threads[-1] == SYNC_THREAD


async def test_an_event_loop_waits_for_no_other_thread_that_syncs(path, monkeypatch):
    disk = Disk(monkeypatch)
    monkeypatch.setattr(wal, "INLINE_SYNC_BUDGET_S", 60.0)
    async with opened(path) as driver:
        await driver.enqueue([job("a")], NOW)
        await disk.is_asked()
        disk.goes.clear()
        blocking = asyncio.create_task(asyncio.to_thread(driver.database.write_here, lambda session: None, math.inf))
        await disk.is_asked()
        adding = asyncio.create_task(driver.enqueue([job("b")], NOW))
        while "b" not in await ids(driver):
            await asyncio.sleep(0)
        disk.goes.set()  # if the loop waited for that thread, it would never come to this line
        await adding
        await blocking


async def test_an_event_loop_does_not_save_what_a_sync_failed_to_write(path, monkeypatch):
    """That takes a checkpoint, which waits for other writers and for the disk."""
    disk = Disk(monkeypatch)
    monkeypatch.setattr(wal, "INLINE_SYNC_BUDGET_S", 60.0)
    rescued = []
    make = wal.Checkpointer.make

    def noted(self):
        rescued.append(threading.current_thread().name)
        return make(self)

    monkeypatch.setattr(wal.Checkpointer, "make", noted)
    async with opened(path) as driver:
        await driver.enqueue([job("a")], NOW)
        disk.error = errno.EIO
        with pytest.raises(BackendUnavailable, match="of the disk"):
            await driver.enqueue([job("b")], NOW)
        disk.error = None
        await driver.enqueue([job("c")], NOW)
        assert rescued == [SYNC_THREAD]


async def test_a_call_that_waited_for_a_failed_sync_is_saved_in_another_way_too(path, monkeypatch):
    """Its commit may be among what that sync dropped: a second sync would succeed without having written it."""
    steps, errors = [], [OSError(errno.EIO, "of the disk")]
    goes, begun = threading.Event(), threading.Event()

    def sync(file):
        steps.append("sync")
        begun.set()
        assert goes.wait(60)
        if errors:
            raise errors.pop()

    def rescue(checkpointer):
        steps.append("rescue")
        return checkpointer.make()

    async with opened(path) as driver:
        monkeypatch.setattr(wal, "sync_file", sync)
        database = driver.database
        monkeypatch.setattr(database.writer.wal_sync, "_rescue", partial(rescue, database.writer.checkpoint))
        write = database.write_here
        first = asyncio.create_task(asyncio.to_thread(write, lambda session: None, math.inf))
        assert await asyncio.to_thread(begun.wait, 60)
        second = asyncio.create_task(asyncio.to_thread(write, lambda session: None, math.inf))
        assert database.writer._wal is not None
        while database.writer._wal._asked < 2:
            await asyncio.sleep(0)
        goes.set()
        with pytest.raises(BackendUnavailable, match="of the disk"):
            await first
        await second
        assert steps == ["sync", "rescue", "sync"]
