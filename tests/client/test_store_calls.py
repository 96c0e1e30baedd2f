"""Queues, counts and workers from Python, in both colours, and on drivers whose blocking calls are older."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from taskharbor import BackendUnavailable, Harbor, InvalidJob, JobHandle, JobRequest, QueueInfo, WorkerInfo
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.model.job import JobRecord
from taskharbor.testing import Faults, ManualClock
from tests.client.test_record_calls import kill, on_store
from tests.client.tools import Waits, call


def test_queues_and_counts(harbor: Harbor, colour: str) -> None:
    client, clock = harbor.client, harbor.clock
    assert isinstance(clock, ManualClock)
    assert call(colour, client, harbor, "queues") == []
    began = clock.now()
    client.enqueue(JobRequest(type="t", queue="mail"))
    clock.advance(60)
    client.enqueue(JobRequest(type="t", queue="mail"))
    client.enqueue(JobRequest(type="t", queue="later", delay=60))
    call(colour, client, harbor, "pause", "idle")
    assert call(colour, client, harbor, "counts") == {"later": {"scheduled": 1}, "mail": {"ready": 2}}
    assert call(colour, client, harbor, "counts", cap=1) == {"later": {"scheduled": 1}, "mail": {"ready": 1}}
    assert call(colour, client, harbor, "counts", cap=None)["mail"] == {"ready": 2}
    assert call(colour, client, harbor, "queues") == [
        QueueInfo("idle", True, {}),
        QueueInfo("later", False, {"scheduled": 1}),
        QueueInfo("mail", False, {"ready": 2}, began),
    ]
    with pytest.raises(ValueError, match="cap: expected 1 or more"):
        call(colour, client, harbor, "counts", cap=0)


def test_the_oldest_ready_job_waits_since_it_became_ready(harbor: Harbor, colour: str) -> None:
    clock = harbor.clock
    assert isinstance(clock, ManualClock)
    first = harbor.client.enqueue(JobRequest(type="t", delay=600))  # lowest id, due last
    clock.advance(60)
    second = clock.now()
    harbor.client.enqueue(JobRequest(type="t"))
    clock.advance(600)
    (queue,) = call(colour, harbor.client, harbor, "queues")
    assert (queue.counts, queue.oldest_ready_at) == ({"ready": 2}, second)
    first.delete()
    kill(harbor)
    (queue,) = call(colour, harbor.client, harbor, "queues")
    assert (queue.counts, queue.oldest_ready_at) == ({"dlq": 1}, None)


def test_a_paused_queue_gives_no_jobs_until_it_is_resumed(harbor: Harbor, colour: str) -> None:
    client = harbor.client
    client.enqueue(JobRequest(type="t", queue="mail"))
    for _ in range(2):  # twice does no harm
        call(colour, client, harbor, "pause", "mail")
    assert call(colour, client, harbor, "is_paused", "mail") is True

    def reserve() -> int:
        now, lease = harbor.clock.now(), timedelta(seconds=30)
        return len(on_store(harbor, lambda driver: driver.reserve(["mail"], now, lease, 9)))

    assert reserve() == 0
    for _ in range(2):
        call(colour, client, harbor, "resume", "mail")
    assert call(colour, client, harbor, "is_paused", "mail") is False
    assert reserve() == 1
    for method in ("pause", "resume", "is_paused"):
        with pytest.raises(InvalidJob, match="queue: expected text, got int"):
            call(colour, client, harbor, method, 5)


def test_workers(harbor: Harbor, colour: str) -> None:
    now = harbor.clock.now()
    assert call(colour, harbor.client, harbor, "workers") == []
    info = WorkerInfo("w1", ("mail",), 2, now, seen_at=now)
    on_store(harbor, lambda driver: driver.beat(info, now))
    (worker,) = call(colour, harbor.client, harbor, "workers")
    assert (worker.worker, worker.queues, worker.running) == ("w1", ("mail",), 2)


def test_a_job_by_its_id_is_the_one_that_a_client_enqueued(colour: str) -> None:
    with Harbor("memory://") as harbor:
        handle = harbor.client.enqueue(JobRequest(type="t"))
        assert harbor.job(handle.id) == handle == harbor.client.handle(handle.id)
        assert isinstance(harbor.job(handle.id), JobHandle)
        assert call(colour, harbor.client, harbor, "counts") == {"default": {"ready": 1}}
        assert harbor.jobs().ids(5) == [handle.id]
    with pytest.raises(InvalidJob, match="id: expected text, got int"):
        harbor.job(5)  # type: ignore[arg-type]  # wrong on purpose


def test_an_outage_is_bridged_and_a_lasting_one_says_what_is_unknown(waits: Waits, colour: str) -> None:
    faults = Faults()
    with Harbor(faults.wrap("memory://")) as harbor:
        for verb, method in (("pause", "pause"), ("resume", "resume"), ("is_paused", "is_paused")):
            faults.fail(verb, times=2)
            call(colour, harbor.client, harbor, method, "mail")
        for verb, method in (("counts", "counts"), ("workers", "workers"), ("queues", "queues")):
            faults.fail(verb, times=2)
            call(colour, harbor.client, harbor, method)
        assert faults.pending() == {}
        faults.fail("pause", times=5)
        with pytest.raises(BackendUnavailable, match=r"pause, tried 5 times .* The queue may or may not be paused"):
            call(colour, harbor.client, harbor, "pause", "mail")


def test_a_store_that_is_busy_is_asked_until_the_time_is_over(waits: Waits, colour: str) -> None:
    class Busy(MemoryDriver):
        left = 9

        async def counts(self, now: Any, cap: int | None = None) -> dict[str, dict[str, int]]:
            self.left -= 1
            if self.left < 0:
                return {}
            error = BackendUnavailable("busy")
            error.passing = True
            raise error

    with Harbor(Busy("memory://")) as harbor:
        assert call(colour, harbor.client, harbor, "counts") == {}


def test_a_call_to_a_store_that_does_not_respond_ends_within_its_time(colour: str) -> None:
    class Silent(MemoryDriver):
        async def counts(self, now: Any, cap: int | None = None) -> dict[str, dict[str, int]]:
            return await asyncio.Event().wait()  # type: ignore[return-value]  # never

    with Harbor(Silent()) as harbor, pytest.raises(BackendUnavailable, match=r"counts: .* within 0\.05 s"):
        call(colour, harbor.client, harbor.within(0.05), "counts")


def test_the_built_in_blocking_calls_have_every_verb(harbor: Harbor) -> None:
    record = JobRecord(id="a", type="t", flow_id="f")
    on_store(harbor, lambda driver: driver.enqueue([record], harbor.clock.now()))
    harbor.job("a").amend(priority=1)
    harbor.pause("default")
    harbor.resume("default")
    assert [queue.name for queue in harbor.queues()] == list(harbor.counts()) == ["default"]
    assert [flow.id for flow in harbor.flows()] == ["f"]
    harbor.job("a").delete()
    assert harbor._store.portal.loop is None


def test_an_awaited_call_without_a_loop_of_asyncio_names_the_remedy() -> None:
    """What trio would do with it: its coroutines are driven by another loop."""
    harbor = Harbor("memory://")

    @harbor.task
    def note() -> None: ...

    for calls in (note.aenqueue, harbor.job("some").astatus):
        with pytest.raises(RuntimeError, match=r"need a running event loop of asyncio.*trio\.to_thread\.run_sync"):
            calls().send(None)
