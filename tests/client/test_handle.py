"""Handles: waiting for a result, the ways in which there is none, and cancelling."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from taskharbor import Client, Harbor, JobCancelled, JobDead, JobNotFound, JobRequest, State, WrongState
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.model.job import JobRecord
from taskharbor.testing import ManualClock
from tests.client.tools import Waits, settle

pytestmark = pytest.mark.usefixtures("each_way")


@dataclass
class Point:
    x: int


def made() -> tuple[Client, MemoryDriver, ManualClock]:
    driver, clock = MemoryDriver(), ManualClock()
    return Client(driver, clock=clock), driver, clock


def test_a_result_has_the_type_the_task_returns() -> None:
    harbor = Harbor("memory://")

    @harbor.task
    def move(x: int) -> Point:
        return Point(x)

    @harbor.task
    def nothing() -> None: ...

    with harbor:
        first, second = move.enqueue(1), nothing.enqueue()
        harbor.worker().run(until_empty=True)
        assert first.result() == Point(1)
        assert second.result() is None
        assert harbor.client.handle(first.id).result() == {"x": 1}
        assert harbor.client.handle(first.id, Point).result() == Point(1)
        assert first.status() is State.DONE
        assert asyncio.run(first.aresult()) == Point(1)
        assert "existed=False" in repr(first)


def test_a_result_that_does_not_fit_its_annotation_is_an_error_without_its_value() -> None:
    harbor = Harbor("memory://")

    @harbor.task(name="counts")
    def counts() -> int:
        return "canary"  # type: ignore[return-value]  # wrong on purpose

    with harbor:
        handle = counts.enqueue()
        harbor.worker().run(until_empty=True)
        with pytest.raises(ValueError, match=r"its result cannot be read as int: expected int, got str; ") as caught:
            handle.result()
        assert "canary" not in str(caught.value)
        assert harbor.client.handle(handle.id).result() == "canary"


def test_polls_grow_apart_until_the_timeout(waits: Waits) -> None:
    client, _, _ = made()
    with client:
        handle = client.enqueue(JobRequest(type="t"))
        with pytest.raises(TimeoutError, match=f"job {handle.id} is ready after 10 seconds; no worker"):
            handle.result(10)
        assert waits.slept[:3] == pytest.approx([0.002, 0.003, 0.0045])
        assert max(waits.slept) == 0.5
        assert sum(waits.slept) == pytest.approx(10)
        waits.slept.clear()
        with pytest.raises(TimeoutError):
            handle.result(timedelta(0))
        assert waits.slept == []
        with pytest.raises(ValueError, match="timeout: expected zero or more"):
            handle.result(-1)


def test_a_result_that_comes_while_waiting(waits: Waits) -> None:
    client, driver, clock = made()

    async def main() -> Any:
        handle = await client.aenqueue(JobRequest(type="t"))
        waiting = asyncio.ensure_future(handle.aresult())
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(waits.slept) > 5
        await settle(driver, clock.now(), "ack", result=b'{"a":1}')
        return await waiting

    assert asyncio.run(main()) == {"a": 1}


@pytest.mark.parametrize(("how", "error"), [("fail", JobDead), ("cancel", JobCancelled)])
def test_a_dead_or_cancelled_job_is_raised_with_its_reason(how: str, error: Any) -> None:
    client, driver, clock = made()
    with client:
        handle = client.enqueue(JobRequest(type="t"))
        asyncio.run(settle(driver, clock.now(), how, reason="because"))
        with pytest.raises(error, match=f"job {handle.id} .*: because") as caught:
            handle.result()
        assert (caught.value.reason, caught.value.job_id) == ("because", handle.id)


def test_a_dead_job_says_what_its_handler_raised_without_what_it_was_given() -> None:
    with Harbor("memory://") as harbor:

        @harbor.task(max_attempts=1)
        def pay(card: str) -> None:
            raise ConnectionError(f"no answer for {card}")

        handle = pay.enqueue("CANARY-4111")
        harbor.worker().run(until_empty=True)
        with pytest.raises(JobDead, match=r"failed 1 of 1 attempts: ConnectionError: no answer for •••$") as caught:
            handle.result()
        dead = caught.value
        assert (dead.reason, dead.error_class) == ("failed 1 of 1 attempts", "ConnectionError")
        assert dead.last_error.startswith("ConnectionError: no answer for •••\n")
        assert "in pay" in dead.last_error
        assert "CANARY" not in f"{dead!r} {vars(dead)}"


def test_a_job_without_a_record_is_explained() -> None:
    client, driver, _ = made()
    with client:
        handle = client.enqueue(JobRequest(type="t"))
        asyncio.run(driver.delete([handle.id]))
        for ask in (handle.status, handle.result):
            with pytest.raises(JobNotFound, match=r"has no record: .* longer ago than the store keeps finished jobs"):
                ask()


def test_a_job_that_handed_over_is_followed_to_its_successor() -> None:
    client, driver, clock = made()
    spawned = JobRecord(id="next", type="t", queue="other", flow_id="f")

    async def main() -> None:
        handle = await client.aenqueue(JobRequest(type="t"))
        await settle(driver, clock.now(), "ack", spawn=(spawned,), handover="next")
        assert await handle.astatus() is State.READY
        with pytest.raises(TimeoutError, match="job next is ready"):
            await handle.aresult(1)
        await settle(driver, clock.now(), "ack", "other", result=b"[1]")
        assert await client.handle(handle.id, int).aresult() == [1]
        assert await handle.astatus() is State.DONE

    asyncio.run(main())


def test_cancel() -> None:
    client, driver, clock = made()
    with client:
        handle = client.enqueue(JobRequest(type="t"))
        handle.cancel()
        handle.cancel()
        assert handle.status() == "cancelled"
        with pytest.raises(JobCancelled):
            handle.result()
        done = client.enqueue(JobRequest(type="t"))
        asyncio.run(settle(driver, clock.now(), "ack"))
        with pytest.raises(WrongState):
            done.cancel()
        with pytest.raises(JobNotFound):
            client.handle("nobody").cancel()


def test_cancelling_a_job_whose_place_a_workflow_took_cancels_the_workflow() -> None:
    client, driver, clock = made()
    jobs = tuple(JobRecord(id=id, type="t", queue="other", flow_id="f") for id in ("a", "b"))

    async def main() -> None:
        handle = await client.aenqueue(JobRequest(type="t"))
        await settle(driver, clock.now(), "ack", spawn=jobs, handover="b")
        await handle.acancel()
        assert await client.handle("a").astatus() is State.CANCELLED
        assert await handle.astatus() is State.CANCELLED

    asyncio.run(main())


def test_cancelling_inside_a_workflow_cancels_only_what_took_the_place() -> None:
    client, driver, clock = made()

    async def main() -> None:
        own = [JobRecord(id=id, type="t", queue=queue, flow_id="f") for id, queue in (("a", "default"), ("b", "b"))]
        await driver.enqueue(own, clock.now())
        spawned = JobRecord(id="c", type="t", queue="other", flow_id="f")
        await settle(driver, clock.now(), "ack", spawn=(spawned,), handover="c")
        await client.handle("a").acancel()
        assert await client.handle("c").astatus() is State.CANCELLED
        assert await client.handle("b").astatus() is State.READY

    asyncio.run(main())
