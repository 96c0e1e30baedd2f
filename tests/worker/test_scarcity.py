"""Something of the system is used up: threads, file descriptors, memory. Work slows, no job pays for it, and the log
says what is missing."""

import asyncio
import errno
import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from taskharbor.events import JobGivenBack, JobSucceeded
from taskharbor.observe.log import LogObserver
from taskharbor.worker import child_main, child_processes, threads
from tests.worker import process_handlers as handlers
from tests.worker.workbench import Bench, heard_test, job

JOBS = "abcd"


class Limit:
    """How many more the system gives, and what it answers afterwards."""

    left = 0

    def take(self, error: BaseException) -> None:
        if self.left <= 0:
            raise error
        self.left -= 1


async def goes_on(bench: Bench, limit: Limit, missing: str, given_back: int, **options: Any) -> None:
    """Jobs are given back while there is too little, and done once there is enough."""
    worker = bench.worker(concurrency=len(JOBS))
    worker.register("t", handlers.nothing, **options)
    await bench.enqueue(*map(job, JOBS))
    async with bench.running(worker):
        events = await bench.heard(JobGivenBack, given_back)
        limit.left = 100
        while "inflight" in [await bench.state(id) for id in JOBS]:
            await asyncio.sleep(0)
        bench.clock.advance(2)
        await bench.heard(JobSucceeded, len(JOBS))
    assert all(missing in event.reason for event in events)
    assert {(await bench.info(id)).job.attempts for id in JOBS} == {0}


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "jobs are given back until" in each.getMessage()]


def test_without_threads(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    limit = Limit()
    limit.left = 1

    class Thread(threading.Thread):
        def start(self) -> None:
            limit.take(RuntimeError("can't start new thread"))
            super().start()

    monkeypatch.setattr(threads, "threading", SimpleNamespace(Thread=Thread))

    @heard_test
    async def test(bench: Bench) -> None:
        await goes_on(bench, limit, "no thread could be started: can't start new thread", len(JOBS) - 1)

    with caplog.at_level(logging.WARNING, "taskharbor.worker"):
        test()
    assert len(said(caplog)) == 1


@pytest.mark.parametrize(("number", "text"), [(errno.EMFILE, "Too many open files"), (errno.ENOMEM, "Cannot allocate")])
def test_without_child_processes(
    number: int, text: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limit, start = Limit(), child_processes._Child

    def child() -> Any:
        limit.take(OSError(number, "with a /secret/path"))
        return start()

    monkeypatch.setattr(child_processes, "_Child", child)

    @heard_test
    async def test(bench: Bench) -> None:
        await goes_on(bench, limit, f"no child process could be started: {text}", len(JOBS), process=True)

    with caplog.at_level(logging.WARNING, "taskharbor.worker"):
        test()
    assert len(said(caplog)) == 1
    assert "secret" not in said(caplog)[0]


@pytest.mark.parametrize("begins", [handlers.begins_without_memory, handlers.begins_without_thread])
def test_children_that_die_before_they_begin(begins: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    limit, serve = Limit(), child_main.serve

    class Child(child_processes._Child):
        def __init__(self) -> None:
            monkeypatch.setattr(child_processes, "serve", serve if limit.left else begins)
            super().__init__()

    monkeypatch.setattr(child_processes, "_Child", Child)

    @heard_test
    async def test(bench: Bench) -> None:
        await goes_on(bench, limit, "the system had no memory or no thread for it", len(JOBS), process=True)

    test()


@heard_test
async def test_a_backlog_is_not_taken_and_given_back_while_there_is_too_little(bench: Bench) -> None:
    limit, going = Limit(), threading.Event()
    limit.left = 1

    class Thread(threading.Thread):
        def start(self) -> None:
            limit.take(RuntimeError("can't start new thread"))
            super().start()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(threads, "threading", SimpleNamespace(Thread=Thread))
        worker = bench.worker(concurrency=3)
        worker.register("wait", going.wait)
        worker.register("t", handlers.nothing)
        await bench.enqueue(job("w", type="wait"), *(job(f"t{number}") for number in range(50)))
        async with bench.running(worker):
            await bench.heard(JobGivenBack, 2)
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(bench.of(JobGivenBack)) == 2
            bench.clock.advance(1)  # it is tried again with what fits into the slots, and not with more
            await bench.heard(JobGivenBack, 4)
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(bench.of(JobGivenBack)) == 4
            going.set()  # the thread that there is runs what comes, one job after the other
            await bench.heard(JobSucceeded, 20)
            assert len(bench.of(JobGivenBack)) == 4


def test_the_log_says_what_is_used_up() -> None:
    assert LogObserver()._error(OSError(errno.EMFILE, "x", "/secret/path")) == "OSError (Too many open files)"
    assert LogObserver()._error(OSError(errno.EACCES, "x", "/secret/path")) == "PermissionError"
