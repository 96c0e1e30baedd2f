"""What a handler reports with ctx.progress is stored within about two seconds, at no cost for the others."""

import asyncio
import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from queue import SimpleQueue
from typing import Any

import pytest

from taskharbor import JobContext
from taskharbor.drivers import ATTEMPT_FIELDS, Lease
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.events import JobProgress, JobStarted, JobSucceeded, StoreLost
from taskharbor.model.errors import BackendUnavailable, InvalidJob, TaskHarborError
from taskharbor.model.progress import Progress, read_note
from taskharbor.testing.clock import START
from taskharbor.worker.progress_notes import progress_of
from tests.worker import process_handlers
from tests.worker.workbench import Bench, bench_test, heard_test, job


class Watched(MemoryDriver):
    """Notes each extend: the tokens of its leases, and those of its notes."""

    def __init__(self) -> None:
        super().__init__()
        self.extends: list[tuple[set[str], set[str]]] = []
        self.trouble: list[Any] = []
        self.stored: SimpleQueue[set[str]] = SimpleQueue()

    def sibling(self) -> "Watched":
        other = Watched()
        other.store, other.extends, other.trouble, other.stored = self.store, self.extends, self.trouble, self.stored
        return other

    async def extend(
        self, leases: Sequence[Lease], now: datetime, lease_for: timedelta, notes: Any = None
    ) -> list[Lease | TaskHarborError]:
        self.extends.append(({lease.job_id for lease in leases}, set(notes or ())))
        if self.trouble:
            what = self.trouble.pop(0)
            if isinstance(what, Exception):
                raise what
            return [what(lease.job_id) for lease in leases]
        results = await super().extend(leases, now, lease_for, notes)
        if notes:
            self.stored.put(set(notes))
        return results


class Reporter:
    """A handler that reports what it is given, until it gets None."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.bench.driver = self.driver = Watched()
        self.reports: dict[str, asyncio.Queue[Any]] = {"a": asyncio.Queue(), "b": asyncio.Queue()}

    async def __call__(self, name: str, ctx: JobContext) -> None:
        while (given := await self.reports[name].get()) is not None:
            ctx.progress(*given)

    async def report(self, name: str, *given: Any) -> None:
        before = len(self.bench.of(JobProgress))
        self.reports[name].put_nowait(given)
        await self.bench.heard(JobProgress, before + 1)
        await settled()

    async def stored(self, name: str) -> Progress | None:
        return read_note((await self.bench.info(name)).job.note)

    async def start(self, **options: Any) -> Any:
        worker = self.bench.worker(heartbeat=10, lease=30, **options)
        worker.register("t", self)
        await self.bench.enqueue(*[job(name, payload=b'{"name":"%s"}' % name.encode()) for name in self.reports])
        return worker

    async def wait(self, seconds: float) -> None:
        self.bench.clock.advance(seconds)
        await settled()


async def settled() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


@bench_test
async def test_progress_is_stored_at_once_and_then_every_two_seconds(bench: Bench) -> None:
    jobs = Reporter(bench)
    async with bench.running(await jobs.start()):
        await bench.heard(JobStarted, 2)
        await jobs.report("a", 1, 4, "pages")
        assert await jobs.stored("a") == Progress(done=1, total=4, note="pages", at=START)
        await jobs.report("a", 2, 4)
        await jobs.report("b", 7)
        await jobs.report("a", 3, 4, "more")
        await jobs.wait(1.9)
        assert (await jobs.stored("a"), await jobs.stored("b")) == (
            Progress(done=1, total=4, note="pages", at=START),
            None,
        )
        await jobs.wait(0.1)
        assert await jobs.stored("a") == Progress(done=3, total=4, note="more", at=START)
        assert await jobs.stored("b") == Progress(done=7, at=START)
        assert [leases for leases, _ in jobs.driver.extends] == [{"a"}, {"a", "b"}]


@bench_test
async def test_a_job_that_reports_nothing_costs_no_call_and_no_wake_up(bench: Bench) -> None:
    jobs = Reporter(bench)
    async with bench.running(await jobs.start()):
        await bench.heard(JobStarted, 2)
        await settled()
        sleepers = bench.clock.sleepers
        for _ in range(9):
            await jobs.wait(1)
            assert bench.clock.sleepers == sleepers
        assert jobs.driver.extends == []
        await jobs.wait(1)
        assert jobs.driver.extends == [({"a", "b"}, set())]


@bench_test
async def test_a_renewal_takes_along_what_waits_and_stays_on_its_time(bench: Bench) -> None:
    jobs = Reporter(bench)
    async with bench.running(await jobs.start()):
        await bench.heard(JobStarted, 2)
        await jobs.wait(9)
        await jobs.report("a", 1)
        await jobs.report("a", 2)
        await jobs.wait(1)
        assert await jobs.stored("a") == Progress(done=2, at=START + timedelta(seconds=9))
        assert [leases for leases, _ in jobs.driver.extends] == [{"a"}, {"a", "b"}]
        await jobs.wait(9.9)
        assert len(jobs.driver.extends) == 2
        await jobs.wait(0.1)
        assert [(leases, bool(notes)) for leases, notes in jobs.driver.extends[2:]] == [({"a", "b"}, False)]


@bench_test
async def test_the_last_progress_stays_when_the_job_has_ended(bench: Bench) -> None:
    jobs = Reporter(bench)
    async with bench.running(await jobs.start()):
        await jobs.report("a", 4, 4)
        jobs.reports["a"].put_nowait(None)
        await bench.heard(JobSucceeded)
        assert await jobs.stored("a") == Progress(done=4, total=4, at=START)


@pytest.mark.parametrize(
    "trouble", [BackendUnavailable("away"), lambda id: BackendUnavailable(id)], ids=["call", "job"]
)
@bench_test
async def test_progress_that_the_store_could_not_take_is_sent_again(bench: Bench, trouble: Any) -> None:
    jobs = Reporter(bench)
    async with bench.running(await jobs.start()):
        await bench.heard(JobStarted, 2)
        jobs.driver.trouble.append(trouble)
        await jobs.report("a", 1)
        assert await jobs.stored("a") is None
        assert bool(bench.of(StoreLost)) is isinstance(trouble, Exception)
        await jobs.wait(2)
        assert await jobs.stored("a") == Progress(done=1, at=START)


@bench_test
async def test_progress_that_the_store_refuses_costs_no_lease(bench: Bench) -> None:
    jobs = Reporter(bench)
    async with bench.running(await jobs.start()):
        await bench.heard(JobStarted, 2)
        jobs.driver.trouble.append(lambda id: InvalidJob("note: expected at most 1024 bytes"))
        await jobs.report("a", 1)
        await jobs.wait(10)
        await bench.extended("a", START + timedelta(seconds=40))
        jobs.reports["a"].put_nowait(None)
        await bench.heard(JobSucceeded)


@bench_test
async def test_a_store_that_keeps_no_notes_gets_none(bench: Bench) -> None:
    jobs = Reporter(bench)
    Watched.unkept = ATTEMPT_FIELDS
    try:
        async with bench.running(await jobs.start()):
            await jobs.report("a", 1)
            await jobs.wait(2)
            assert jobs.driver.extends == []
    finally:
        Watched.unkept = frozenset()


@pytest.mark.parametrize("where", ["thread", "process"])
@heard_test
async def test_progress_of_a_thread_and_of_a_child_process_is_stored(bench: Bench, where: str) -> None:
    bench.driver = driver = Watched()
    gate = threading.Event()
    worker = bench.worker(heart="thread")

    def function(ctx: JobContext) -> None:
        ctx.progress(1, 2, "in a thread")
        gate.wait(30)

    worker.register("thread", function)
    worker.register("process", process_handlers.reports, process=True)
    await bench.enqueue(job("j", where))
    async with bench.running(worker):
        await asyncio.to_thread(driver.stored.get, True, 30)
        found = read_note((await bench.info("j")).job.note)
        assert found is not None
        assert (found.done, found.total, found.note) == (1, 2, f"in a {where}")
        gate.set()


class Shouting:
    """A codec of the user's own: the stored payload does not show the values."""

    def encode(self, value: Any) -> bytes:
        raise NotImplementedError

    def decode(self, data: bytes, type: Any = Any) -> Any:
        return {"name": "s3cret-value"}


@bench_test
async def test_words_are_masked_like_error_text(bench: Bench) -> None:
    gate = asyncio.Event()

    async def handler(name: str, ctx: JobContext) -> None:
        ctx.progress(1, 2, f"sending to {name}")
        await gate.wait()

    async with bench.serving(handler, job("j", payload=b"????"), codec=Shouting(), heartbeat=10, lease=30):
        await bench.heard(JobProgress)
        await settled()
        found = read_note((await bench.info("j")).job.note)
        assert found is not None
        assert found.note == "sending to •••"


NOW = START


class Odd:
    def __float__(self) -> float:
        raise RuntimeError


@pytest.mark.parametrize("done", [float("nan"), float("inf"), "3", b"3", None, Odd(), object(), 10**400, 1j, [1]])
def test_what_is_not_a_number_is_not_stored(done: Any) -> None:
    assert progress_of(done, 10, "", NOW) is None
    assert progress_of(3, done, "", NOW) == Progress(done=3.0, total=None, at=NOW)


@pytest.mark.parametrize("done", [3, 3.0, Decimal(3)])
def test_numbers_of_any_kind_are_stored_as_floats(done: Any) -> None:
    found = progress_of(done, done, "", NOW)
    assert found is not None
    assert (type(found.done), found.done, type(found.total)) == (float, 3.0, float)


class Text(str):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(("note", "stored"), [("a\x00\ud800b", "a��b"), (7, ""), (None, ""), (Text("words"), "words")])
def test_words_are_made_storable(note: Any, stored: str) -> None:
    found = progress_of(1, None, note, NOW)
    assert found is not None
    assert found.note == stored
