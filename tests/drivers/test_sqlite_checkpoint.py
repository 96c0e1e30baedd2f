"""Checkpoints: the -wal file starts over beside the calls, and no commit makes one."""

import asyncio
import sqlite3
import threading

import pytest

from taskharbor.drivers import Enqueued, JobRecord
from taskharbor.drivers.sqlite import wal
from tests.drivers.sqlite_files import NOW, on, opened, opened_driver

pytestmark = pytest.mark.lane("sqlite")
driver = opened_driver


def job(id, **fields):
    return JobRecord(id=id, type="t", **fields)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs.db"


async def test_the_wal_file_starts_over_while_calls_go_on(path, monkeypatch):
    monkeypatch.setattr(wal, "CHECKPOINT_PAGES", 100)
    made = []
    make = wal.Checkpointer.make

    def counted(self):
        made.append(make(self))
        return made[-1]

    monkeypatch.setattr(wal.Checkpointer, "make", counted)
    async with opened(path) as driver:
        stored = 0
        while sum(made) < 3:
            await driver.enqueue([job(f"j{stored}")], NOW)
            stored += 1
        other = sqlite3.connect(path)
        _, written, _ = other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        other.close()
        assert written < 3 * stored  # an enqueue writes four pages
        assert await driver.counts(NOW) == {"default": {"ready": stored}}


async def test_the_wal_file_starts_over_under_short_reads_that_overlap(path, monkeypatch):
    """There is always a read under way, but none is long."""
    monkeypatch.setattr(wal, "CHECKPOINT_PAGES", 50)
    monkeypatch.setattr(wal, "LARGE_PAGES", 100)
    monkeypatch.setattr(wal, "RETRY_AFTER_COMMITS", 8)
    made, stop = [], threading.Event()
    make = wal.Checkpointer.make
    monkeypatch.setattr(wal.Checkpointer, "make", lambda self: made.append(make(self)))
    reading = [threading.Event(), threading.Event()]

    def read(own, other):
        connection = sqlite3.connect(path, isolation_level=None)
        while not stop.is_set():
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM taskharbor_jobs").fetchone()
            own.set()
            stop.wait(0.02)  # commits go on meanwhile
            other.wait(10)  # until the other one reads as well
            other.clear()
            connection.execute("COMMIT")
        connection.close()

    async with opened(path) as driver:
        await driver.enqueue([job("first")], NOW)
        readers = [threading.Thread(target=read, args=pair) for pair in (reading, reading[::-1])]
        for reader in readers:
            reader.start()
        try:
            stored = 1
            while sum(made) < 3 and stored < 3000:
                await driver.enqueue([job(f"j{stored}")], NOW)
                stored += 1
        finally:
            stop.set()
            for event in reading:
                event.set()
            for reader in readers:
                await asyncio.to_thread(reader.join)
        assert sum(made) == 3
        other = sqlite3.connect(path)
        _, written, _ = other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        other.close()
        assert written < 3 * stored  # an enqueue writes four pages


async def test_a_read_that_does_not_end_is_waited_for_less_and_less_often(path, monkeypatch):
    monkeypatch.setattr(wal, "CHECKPOINT_PAGES", 10)
    monkeypatch.setattr(wal, "LARGE_PAGES", 10)
    monkeypatch.setattr(wal, "RETRY_AFTER_COMMITS", 4)
    monkeypatch.setattr(wal, "READS_WAIT_MS", 1)
    made = []
    make = wal.Checkpointer.make
    monkeypatch.setattr(wal.Checkpointer, "make", lambda self: made.append(make(self)))
    async with opened(path) as driver:
        await driver.enqueue([job("first")], NOW)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM taskharbor_jobs").fetchone()
        await driver.enqueue([job("second")], NOW)
        made.clear()  # the first ones were made before the read began
        for number in range(200):
            await driver.enqueue([job(f"j{number}")], NOW)
        assert made[0] is False
        assert len(made) <= 8  # after 8, 16, 32, 64 and 128 commits
        other.close()
        for number in range(200, 600):
            await driver.enqueue([job(f"j{number}")], NOW)
        assert True in made


async def test_a_checkpoint_makes_the_first_commit_of_the_new_wal_file(driver, path):
    await driver.enqueue([job(f"j{number}") for number in range(300)], NOW)
    assert await asyncio.to_thread(driver.database.writer.checkpoint.make)
    other = sqlite3.connect(path)
    assert other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1] == 1
    other.close()
    assert await driver.enqueue([job("last")], NOW) == [Enqueued("last", False)]
    assert await driver.counts(NOW) == {"default": {"ready": 301}}


def test_no_commit_makes_a_checkpoint_and_a_single_call_has_it_made(path, monkeypatch):
    async def first(driver):
        await driver.enqueue([job("a")], NOW)
        other = sqlite3.connect(path, check_same_thread=False)  # so that the log outlives its writer
        other.execute("SELECT count(*) FROM taskharbor_jobs").fetchone()
        return other

    other = on(path, first)
    monkeypatch.setattr(wal, "CHECKPOINT_PAGES", 1)
    made = []
    make = wal.Checkpointer.make
    monkeypatch.setattr(wal.Checkpointer, "make", lambda self: made.append(make(self)))

    async def scenario(driver):
        assert await driver.database.write(lambda session: session.one("PRAGMA wal_autocheckpoint")) == (0,)
        await driver.enqueue([job("b")], NOW)

    on(path, scenario)
    other.close()
    assert made == [True]


async def test_a_checkpoint_that_cannot_be_made_does_no_harm(path, monkeypatch):
    monkeypatch.setattr(wal, "CHECKPOINT_PAGES", 1)
    monkeypatch.setattr(wal, "COMMITS_BETWEEN_CHECKS", 1)
    monkeypatch.setattr(wal, "RETRY_AFTER_COMMITS", 1)
    monkeypatch.setattr(wal, "CHECKPOINT", "SELECT 1 FROM nowhere")
    async with opened(path) as driver:
        for number in range(5):
            assert await driver.enqueue([job(f"j{number}")], NOW) == [Enqueued(f"j{number}", False)]
