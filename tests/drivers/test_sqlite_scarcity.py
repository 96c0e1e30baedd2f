"""Too few file descriptors or threads: a call fails with a sentence that names them, and the next one works."""

import asyncio
import errno
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from taskharbor import BackendUnavailable
from taskharbor.drivers.sqlite import SqliteDriver, database, threads
from taskharbor.drivers.sqlite.wait import FileWatch
from tests.drivers.sqlite_files import LEASE, job, opened
from tests.lanes import ROOT

pytestmark = pytest.mark.lane("sqlite")

FEW = """
import os, resource, sys
from taskharbor import BackendUnavailable, Client, JobRequest

client = Client(sys.argv[1])
client.enqueue(JobRequest(type="warm"))
client.close()
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
lowest = os.dup(0)  # and so the lowest number that is free
os.close(lowest)
for more in range(2, 7):
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + more, hard))
    try:
        Client(sys.argv[1]).within(0.2).enqueue(JobRequest(type="job"))
    except BackendUnavailable as error:
        print(error)
"""


def test_too_few_file_descriptors_are_named(tmp_path: Path) -> None:
    given = [sys.executable, "-c", FEW, f"sqlite:///{tmp_path}/jobs.db"]
    done = subprocess.run(given, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    lines = [line for line in done.stdout.splitlines() if "SQLITE_CANTOPEN" in line]
    assert lines
    assert [line for line in lines if "too many open files in this process or system; raise" not in line] == []


def refuse_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = ["once"]
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if refused:
            refused.pop()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)


def test_a_thread_that_could_not_start_is_started_by_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_one_thread(monkeypatch)
    done, second = list[str](), threading.Event()

    def work(items: list[str]) -> None:
        done.extend(items)
        second.set()

    thread = threads.WorkThread("tested", work)
    with pytest.raises(BackendUnavailable, match="no further thread can be started"):
        thread.put("first")
    thread.put("second")
    assert second.wait(60)
    thread.stop()
    assert done == ["second"]  # its caller learned that the first was not done


async def test_an_enqueue_that_is_refused_for_want_of_a_thread_stores_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path / "jobs.db") as driver:
        driver.database.writer.thread.stop()
        now = await driver.server_time()
        refuse_one_thread(monkeypatch)
        with pytest.raises(BackendUnavailable):
            await driver.enqueue([job(f"a{number}") for number in range(200)], now)
        await driver.enqueue([job(f"b{number}") for number in range(200)], now)
        assert await driver.counts(now) == {"default": {"ready": 200}}


async def test_a_transaction_for_which_there_is_no_thread_holds_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path / "jobs.db") as driver:
        now = await driver.server_time()
        await driver.enqueue([job("a")], now)
        [taken] = await driver.reserve(["default"], now, LEASE, 1, "w")
        with monkeypatch.context() as patched:
            refuse_one_thread(patched)
            with pytest.raises(BackendUnavailable):
                await driver.transaction(taken.lease).__aenter__()
        assert driver.database.writer.turns.try_take()
        driver.database.writer.turns.end()
        refuse_one_thread(monkeypatch)  # that of the warning that it lasts long
        transaction = driver.transaction_sync(taken.lease)
        with transaction as connection:
            assert connection.in_transaction
        transaction.rollback()


def test_without_a_descriptor_to_watch_with_waiting_lasts_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[FileWatch]()

    def watch(*arguments: Any) -> FileWatch:
        made.append(FileWatch(*arguments))
        return made[-1]

    def refuse(*arguments: Any) -> FileWatch:
        raise OSError(errno.EMFILE, "Too many open files")

    async def test() -> None:
        driver = SqliteDriver(f"sqlite:///{tmp_path}/jobs.db")
        await driver.open()
        monkeypatch.setattr(database, "FileWatch", refuse)
        assert await driver.wait(["default"], 0) is False
        monkeypatch.setattr(database, "FileWatch", watch)
        assert await driver.wait(["default"], 0) is False
        await driver.close()

    asyncio.run(test())
    assert len(made) == 1
