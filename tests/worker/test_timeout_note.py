"""A worker that starts names the plain functions that have a timeout and cannot stop at it."""

import asyncio
import logging

import pytest

from taskharbor import Harbor, JobContext


def test_a_worker_names_plain_tasks_with_a_timeout_once(caplog: pytest.LogCaptureFixture) -> None:
    harbor = Harbor("memory://")

    @harbor.task(name="plain", timeout=5)
    def plain() -> None: ...

    @harbor.task(name="checks", timeout=5)
    def checks(ctx: JobContext) -> None: ...

    @harbor.task(name="coroutine", timeout=5)
    async def coroutine() -> None: ...

    @harbor.task(name="endless")
    def endless() -> None: ...

    worker = harbor.worker()
    with caplog.at_level(logging.WARNING, "taskharbor.worker"):
        for _ in range(2):
            asyncio.run(worker.arun(until_empty=True))
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith("a timeout does not stop a plain function")
    assert "next attempt: plain; process=True" in said


def test_a_worker_without_such_tasks_says_nothing() -> None:
    harbor = Harbor("memory://")
    assert harbor.handlers.note_timeouts() is None
    for number in range(12):
        harbor.task(name=f"task-{number:02}", timeout=5)(lambda: None)
    note = harbor.handlers.note_timeouts()
    assert note is not None
    assert "task-09 and 2 more;" in note
