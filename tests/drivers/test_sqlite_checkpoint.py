"""Checkpoints: the -wal file starts over beside the calls, and no commit makes one."""

import asyncio
import os
import re
import sqlite3

import pytest

from taskharbor.drivers import Enqueued, JobRecord
from taskharbor.drivers.sqlite import reader, wal
from tests.drivers.sqlite_files import NOW, foreign_transaction, on, opened, opened_driver
from tests.lanes import figure

pytestmark = pytest.mark.lane("sqlite")
driver = opened_driver


def job(id, **fields):
    return JobRecord(id=id, type="t", **fields)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs.db"


async def test_the_wal_file_starts_over_while_calls_go_on(path, monkeypatch):
    monkeypatch.setattr(wal, "CHECKPOINT_BYTES", 400_000)
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


COUNT = "WITH RECURSIVE n(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n WHERE n < ?) SELECT count(*) FROM n"


def slow_read(steps, begun):
    """A read of ours that holds its snapshot for a while."""

    def work(session):
        begun.append(steps)
        session.one("SELECT count(*) FROM taskharbor_jobs")
        return session.one(COUNT, steps)[0]

    return work


async def test_reads_of_ours_that_overlap_without_end_do_not_let_the_wal_file_grow(path, monkeypatch):
    """Each lasts until it is asked to end, and the next begins before: there is always one under way."""
    monkeypatch.setattr(wal, "CHECKPOINT_BYTES", 100_000)
    monkeypatch.setattr(wal, "LARGE_BYTES", 400_000)
    monkeypatch.setattr(wal, "RETRY_AFTER_COMMITS", 8)
    monkeypatch.setattr(reader, "MOMENT_NS", 1_000_000)
    steps, wanted = 100_000, figure(test=2_500_000, full=50_000_000)
    largest, written, stop = 0, 0, asyncio.Event()
    reads: list[int] = []
    begun: list[int] = []

    async def read(driver):
        while not stop.is_set():
            reads.append(await driver.database.read(slow_read(steps, begun)))

    async with opened(path) as driver, opened(path, retention="1h") as first, opened(path, retention="2h") as second:
        reading = [asyncio.create_task(read(each)) for each in (first, second)]
        while written < wanted or (len(begun) < len(reads) + 4 and written < 4 * wanted):
            await driver.enqueue([job(f"j{written}", payload=b"x" * 3000)], NOW)
            written += 4 * 4096  # pages
            largest = max(largest, os.stat(f"{path}-wal").st_size)
        stop.set()
        await asyncio.gather(*reading)
        assert largest <= 400_000 + 100_000  # what one transaction writes on top
        assert len(begun) > len(reads)
        assert set(reads) == {steps}  # those that were stopped began anew, and came to their end


def test_a_foreign_reader_is_waited_for_less_and_less_often_and_named(path, monkeypatch, caplog):
    """SQLite cannot start the file over under it, and it does not end for us."""
    monkeypatch.setattr(wal, "CHECKPOINT_BYTES", 40_000)
    monkeypatch.setattr(wal, "LARGE_BYTES", 40_000)
    monkeypatch.setattr("taskharbor.drivers.sqlite.writer.LARGE_BYTES", 40_000)
    monkeypatch.setattr(wal, "RETRY_AFTER_COMMITS", 4)
    monkeypatch.setattr(wal, "READS_WAIT_MS", 1)
    made: list[None] = []
    make_room = wal.Checkpointer.make_room
    monkeypatch.setattr(wal.Checkpointer, "make_room", lambda self: made.append(make_room(self)))

    async def scenario(driver):
        await driver.enqueue([job("first")], NOW)
        with foreign_transaction(path, "BEGIN") as foreign:
            await beside(driver, foreign)
        assert await driver.hindered() == []
        grown = os.stat(f"{path}-wal").st_size
        for number in range(200, 600):
            await driver.enqueue([job(f"j{number}")], NOW)
        assert os.stat(f"{path}-wal").st_size < grown + 1_000_000  # it has started over: these are 6 MB

    async def beside(driver, foreign):
        made.clear()
        for number in range(200):
            await driver.enqueue([job(f"j{number}")], NOW)
        assert 2 <= len(made) <= 8  # after 8, 16, 32, 64 and 128 commits
        [text] = await driver.hindered()
        assert f"process {foreign.pid} (python" in text
        assert [re.sub(r"\d+ MB", "", text)] == [re.sub(r"\d+ MB", "", each.message) for each in caplog.records]

    on(path, scenario)


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
    monkeypatch.setattr(wal, "CHECKPOINT_BYTES", 0)
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
    monkeypatch.setattr(wal, "CHECKPOINT_BYTES", 0)
    monkeypatch.setattr(wal, "COMMITS_BETWEEN_CHECKS", 1)
    monkeypatch.setattr(wal, "RETRY_AFTER_COMMITS", 1)
    monkeypatch.setattr(wal, "CHECKPOINT", "SELECT 1 FROM nowhere")
    async with opened(path) as driver:
        for number in range(5):
            assert await driver.enqueue([job(f"j{number}")], NOW) == [Enqueued(f"j{number}", False)]
