"""Waiting for the end of a job, and watching it on the way."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from taskharbor import BlockingCall, Client, Harbor, JobContext, JobNotFound, JobRequest, State
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.model.job import JobRecord
from taskharbor.model.outcome import Ack
from taskharbor.model.progress import Progress, read_note, write_note
from taskharbor.testing import ManualClock
from tests.client.test_record_calls import kill, reserve, settle
from tests.client.tools import Waits, call

LEASE = timedelta(seconds=30)


@pytest.mark.parametrize("end", ["done", "dlq", "cancelled"])
def test_wait_returns_how_the_job_ended(harbor: Harbor, colour: str, end: str) -> None:
    handle = harbor.client.enqueue(JobRequest(type="t"))
    if end == "done":
        settle(harbor, Ack(reserve(harbor).lease))
    elif end == "dlq":
        kill(harbor)
    else:
        handle.cancel()
    assert call(colour, harbor.client, handle, "wait") == end
    (info,) = call(colour, harbor.client, handle, "watch")
    assert (info.job.id, info.state) == (handle.id, end)


def test_wait_and_watch_end_with_the_timeout(waits: Waits, harbor: Harbor, colour: str) -> None:
    handle = harbor.client.enqueue(JobRequest(type="t"))
    for method in ("wait", "watch"):
        with pytest.raises(TimeoutError, match=f"job {handle.id} is ready after 10 seconds; no worker"):
            call(colour, harbor.client, handle, method, 10)
        assert sum(waits.slept) == pytest.approx(10)
        waits.slept.clear()
        with pytest.raises(ValueError, match="timeout: expected zero or more"):
            call(colour, harbor.client, handle, method, timeout=-1)


class Playing(MemoryDriver):
    """Something happens to the job before each read."""

    script: list[Any]

    async def inspect(self, id: str, now: Any) -> Any:
        if self.script:
            await self.script.pop(0)()
        return await super().inspect(id, now)

    def sibling(self) -> Playing:
        other = Playing()
        other.store, other.script = self.store, self.script
        return other


def played() -> tuple[Client, Playing]:
    driver, clock = Playing(), ManualClock()
    driver.script = []
    return Client(driver, clock=clock), driver


def test_watch_shows_each_change_of_state_and_progress_once(waits: Waits, colour: str) -> None:
    client, driver = played()
    held: list[Any] = []

    async def nothing() -> None: ...

    async def start() -> None:
        held[:] = await driver.reserve(["default"], client._store.clock.now(), LEASE, 1, "w1")

    def report(done: int) -> Any:
        async def write() -> None:
            lease = held[0].lease
            note = write_note(Progress(done=done, total=2))
            await driver.extend([lease], client._store.clock.now(), LEASE, {lease.token: note})

        return write

    async def finish() -> None:
        assert await driver.settle([Ack(held[0].lease, b"1")], client._store.clock.now()) == [None]

    with client:
        handle = client.enqueue(JobRequest(type="t"))
        driver.script[:] = [nothing, nothing, start, nothing, report(1), report(1), report(2), nothing, finish]
        found = call(colour, client, handle, "watch")
        assert driver.script == []
    seen = [(info.state, read_note(info.job.note)) for info in found]
    assert seen == [
        (State.READY, None),
        (State.INFLIGHT, None),
        (State.INFLIGHT, Progress(done=1, total=2)),
        (State.INFLIGHT, Progress(done=2, total=2)),
        (State.DONE, Progress(done=2, total=2)),
    ]
    assert waits.slept.count(0.002) == 4  # after each change the pauses are short again


def test_watch_shows_an_execution_between_two_reads(waits: Waits, colour: str) -> None:
    client, driver = played()

    async def nothing() -> None: ...

    async def run_and_fail() -> None:
        now = client._store.clock.now()
        (reserved,) = await driver.reserve(["default"], now, LEASE, 1)
        await driver.retry(reserved.lease, now, attempts=1)

    async def cancel() -> None:
        await driver.cancel([handle.id], client._store.clock.now())

    with client:
        handle = client.enqueue(JobRequest(type="t"))
        driver.script[:] = [nothing, run_and_fail, cancel]
        found = call(colour, client, handle, "watch")
    assert [(info.state, info.job.deliveries) for info in found] == [("ready", 0), ("ready", 1), ("cancelled", 1)]


def test_watch_raises_when_the_record_vanishes(waits: Waits, colour: str) -> None:
    client, driver = played()

    async def nothing() -> None: ...

    async def vanish() -> None:
        await driver.delete([handle.id])

    with client:
        handle = client.enqueue(JobRequest(type="t"))
        driver.script[:] = [nothing, nothing, vanish]
        with pytest.raises(JobNotFound, match="has no record"):
            call(colour, client, handle, "watch")


def test_wait_and_watch_follow_a_workflow_that_took_the_place(harbor: Harbor, colour: str) -> None:
    handle = harbor.client.enqueue(JobRequest(type="t"))
    heir = JobRecord(id="heir", type="t", flow_id="f")
    settle(harbor, Ack(reserve(harbor).lease, spawn=(heir,), handover="heir"))
    kill(harbor)
    assert call(colour, harbor.client, handle, "wait") is State.DLQ
    (info,) = call(colour, harbor.client, handle, "watch")
    assert (info.job.id, info.state) == ("heir", State.DLQ)


def test_watching_may_be_left_at_any_time() -> None:
    with Client("memory://") as client:
        handle = client.enqueue(JobRequest(type="t"))
        assert next(iter(handle.watch())).state is State.READY

        async def first() -> State:
            async for info in handle.awatch():
                return info.state
            raise AssertionError

        assert asyncio.run(first()) is State.READY


def test_waiting_in_a_handler_needs_a_timeout() -> None:
    with Harbor("memory://") as harbor:
        other = harbor.client.enqueue(JobRequest(type="nobody runs it", queue="elsewhere"))
        texts: list[str] = []

        @harbor.task(max_attempts=1)
        def plain() -> None:
            for wait in (other.wait, lambda: list(other.watch())):
                with pytest.raises(BlockingCall) as caught:
                    wait()
                texts.append(str(caught.value))
            with pytest.raises(TimeoutError):
                other.wait(0.01)

        @harbor.task(max_attempts=1)
        async def coroutine(ctx: JobContext) -> None:
            with pytest.raises(BlockingCall) as caught:
                await other.await_()
            texts.append(str(caught.value))
            assert (await harbor.job(ctx.job.id).ainfo()).state is State.INFLIGHT
            assert [info.job.id async for info in harbor.jobs(queue="elsewhere")] == [other.id]

        ended = plain.enqueue(), coroutine.enqueue()
        harbor.worker().run(until_empty=True)
        assert [handle.status() for handle in ended] == ["done", "done"]
        assert sorted(text.partition("()")[0] for text in texts) == ["await_", "wait", "watch"]
        assert all("in a handler would wait for job" in text for text in texts)
