"""Blocking calls of the SQLite driver: the calling thread writes and syncs by itself, without an event loop."""

import asyncio
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from taskharbor.drivers import Ack, BackendUnavailable
from taskharbor.drivers.sqlite import SqliteDriver, wal
from taskharbor.drivers.sqlite.blocking import SqliteBlocking
from taskharbor.drivers.sqlite.database import Database
from taskharbor.drivers.sqlite.wait import FileWatch
from tests.drivers.blocking_calls import LATER, NOW, job, make_every_call, run
from tests.drivers.interrupts import check_interrupted_calls

pytestmark = pytest.mark.lane("sqlite")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@contextmanager
def blocking(path: Path) -> Iterator[SqliteBlocking]:
    calls = SqliteDriver(f"sqlite:///{path}").blocking()
    try:
        run(calls, lambda driver: driver.open())
        yield calls
    finally:
        calls.close()


def opened(calls: SqliteBlocking) -> Database:
    assert calls._database is not None
    return calls._database


def ours() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("taskharbor-sqlite")}


def test_every_call_of_a_client_works_without_a_loop_or_a_thread(path):
    before = ours()
    with blocking(path) as calls:
        make_every_call(calls)
        assert ours() <= before  # a thread of an earlier test may end meanwhile


def test_a_driver_on_a_loop_sees_what_was_enqueued_and_is_woken(path, monkeypatch):
    monkeypatch.setattr(FileWatch, "_check", lambda self: True)  # as for another process: it would wake the call too

    async def live() -> None:
        driver = SqliteDriver(f"sqlite:///{path}")
        await driver.open()
        assert await driver.reserve(["q"], NOW, timedelta(minutes=1), 1) == []
        waiting = asyncio.create_task(driver.wait(["q"], 60))
        await asyncio.sleep(0)
        await asyncio.to_thread(run, calls, lambda driver: driver.enqueue([job("a")], NOW))
        assert await waiting
        (held,) = await driver.reserve(["q"], NOW, timedelta(minutes=1), 1)
        assert await driver.settle([Ack(held.lease, b"done")], NOW) == [None]
        await driver.close()

    with blocking(path) as calls:
        asyncio.run(live())
        assert run(calls, lambda driver: driver.results(["a"])) == {"a": b"done"}


def test_a_call_returns_when_it_is_on_the_disk_and_threads_share_syncs(path, monkeypatch):
    """Eight threads enqueue while the disk stands still: one sync was begun, one more serves all the others."""
    goes, begun = threading.Event(), threading.Semaphore(0)
    syncs: list[int] = []

    def sync(file: int) -> None:
        begun.release()
        assert goes.wait(60)
        syncs.append(file)

    with blocking(path) as calls:
        database = opened(calls)
        monkeypatch.setattr(wal, "sync_file", sync)
        done: list[str] = []

        def enqueue(id: str) -> None:
            run(calls, lambda driver: driver.enqueue([job(id)], NOW))
            done.append(id)

        threads = [threading.Thread(target=enqueue, args=(f"j{n}",)) for n in range(8)]
        threads[0].start()
        assert begun.acquire(timeout=60)
        for thread in threads[1:]:
            thread.start()
        file = database.writer._wal
        assert file is not None
        deadline = time.monotonic() + 60
        while file._asked < 8 and time.monotonic() < deadline:
            threading.Event().wait(0.001)
        assert done == []
        goes.set()
        for thread in threads:
            thread.join(60)
        assert len(done) == 8
        assert len(syncs) == 2


def test_a_deadline_ends_the_wait_for_another_writer(path):
    with blocking(path) as calls:
        opened(calls).writer.take_turn()
        try:
            with pytest.raises(BackendUnavailable, match="has held its write lock") as refused:
                run(calls, lambda driver: driver.enqueue([job("a")], NOW), time.monotonic() + 0.01)
            waited = re.search(r"for (\S+) s\.", str(refused.value))  # the time that the call was given
            assert waited is not None
            assert float(waited[1]) <= 0.01
        finally:
            opened(calls).writer.end_turn()
        assert [one.id for one in run(calls, lambda driver: driver.enqueue([job("a")], NOW))] == ["a"]


def test_an_interrupt_ends_the_wait_and_leaves_no_turn_and_no_log_line_behind(path, caplog):
    with blocking(path) as calls:
        writer = opened(calls).writer
        writer.take_turn()
        timer = threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt) as raised:
            run(calls, lambda driver: driver.enqueue([job("a")], NOW), time.monotonic() + 60)
        timer.join()
        assert "interrupted while waiting" in str(raised.value.__context__)  # and not because it waited long enough
        assert not writer.turns._line
        assert caplog.records == []
        writer.end_turn()
        assert [one.id for one in run(calls, lambda driver: driver.enqueue([job("b")], NOW))] == ["b"]


def test_an_interrupt_amid_a_call_takes_effect_when_it_is_stored(path, monkeypatch):
    with blocking(path) as calls:

        def sync(file: int) -> None:
            signal.raise_signal(signal.SIGINT)
            synced.append(file)

        synced: list[int] = []
        monkeypatch.setattr(wal, "sync_file", sync)
        with pytest.raises(KeyboardInterrupt):
            run(calls, lambda driver: driver.enqueue([job("a")], NOW))
        assert len(synced) == 1
        monkeypatch.undo()
        (again,) = run(calls, lambda driver: driver.enqueue([job("a")], NOW))
        assert again.existed


def test_a_forked_child_uses_calls_of_its_own(path):
    with blocking(path) as calls:
        run(calls, lambda driver: driver.enqueue([job("parent")], NOW))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with blocking(path) as own:
                    run(own, lambda driver: driver.enqueue([job("child")], NOW))
                    code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        run(calls, lambda driver: driver.enqueue([job("later")], NOW))
        page = run(calls, lambda driver: driver.list(now=NOW))
        assert [one.job.id for one in page.items] == ["child", "later", "parent"]


def test_a_call_under_way_ends_well_when_the_calls_are_closed(path):
    with blocking(path) as calls:
        writer = opened(calls).writer
        writer.take_turn()
        results: list[Any] = []
        thread = threading.Thread(
            target=lambda: results.extend(run(calls, lambda driver: driver.enqueue([job("a")], NOW)))
        )
        thread.start()
        while not writer.turns._line:
            threading.Event().wait(0.001)
        calls.close()
        writer.end_turn()
        thread.join(60)
        assert [one.id for one in results] == ["a"]
    assert not Path(f"{path}-wal").exists()


def test_closed_calls_are_refused_and_closing_twice_does_nothing(path):
    with blocking(path) as calls:
        calls.close()
        calls.close()
        with pytest.raises(BackendUnavailable, match="were closed"):
            calls.until(LATER)
    assert not Path(f"{path}-wal").exists()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")  # interrupted before it began
def test_a_signal_handler_that_raises_at_any_moment_leaves_the_file_usable(path):
    check_interrupted_calls(f"sqlite:///{path}", opening=True)
