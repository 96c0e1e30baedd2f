"""Too few file descriptors or threads: a call fails with a sentence that names them, and the next one works."""

import asyncio
import errno
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from taskharbor.drivers.sqlite import SqliteDriver, database, threads
from taskharbor.drivers.sqlite.wait import FileWatch
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


def test_a_thread_that_could_not_start_is_started_by_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = ["once"]
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if refused:
            refused.pop()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done, both = list[str](), threading.Event()

    def work(items: list[str]) -> None:
        done.extend(items)
        if len(done) == 2:
            both.set()

    thread = threads.WorkThread("tested", work)
    with pytest.raises(RuntimeError):
        thread.put("first")
    thread.put("second")
    assert both.wait(60)
    thread.stop()


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
