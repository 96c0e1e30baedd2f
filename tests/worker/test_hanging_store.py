"""A store that stands still: whichever verb never answers, and whatever a worker does meanwhile, every stop ends.

The times in which it must end are shortened here, so that a test is quick; that they end it is what is tested. Their
sum is documented in docs/operations.md, and test_the_stop_takes_no_longer_than_documented adds them up.
"""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from taskharbor import JobContext
from taskharbor.drivers import Driver, WrappedDriver
from taskharbor.events import JobGivenBack, JobStarted, JobSucceeded, OutcomeRefused, WorkerStopped
from taskharbor.testing import Faults
from taskharbor.worker import Worker, executor, waiting
from tests.lanes import ROOT
from tests.worker.workbench import Bench, heard_test, job

VERBS = ("open", "close", "server_time", "reserve", "wait", "extend", "settle", "results", "beat", "prune")


class Still:
    """A store whose verbs stand still from the moment they are named; shared by a driver and its siblings.

    `deaf`: a call does not even end when it is cancelled.
    """

    def __init__(self, deaf: bool = False) -> None:
        self.verbs: set[str] = set()
        self.entered: asyncio.Queue[str] = asyncio.Queue()
        self.deaf = deaf
        self.over = asyncio.Event()  # the test has ended: let go of the loop

    def wrap(self, driver: Driver) -> Driver:
        return _Standing(driver, self)

    async def wait(self, verb: str) -> None:
        self.entered.put_nowait(verb)
        while not self.over.is_set():
            try:
                await self.over.wait()
            except asyncio.CancelledError:
                if not self.deaf:
                    raise
        raise asyncio.CancelledError


class _Standing(WrappedDriver):
    def __init__(self, driver: Driver, still: Still) -> None:
        super().__init__(driver)
        self._still = still

    def sibling(self) -> Driver:
        return self._still.wrap(self.inner.sibling())

    async def around(self, verb: str, call: Any, args: Any) -> Any:
        if verb in self._still.verbs:
            await self._still.wait(verb)
        return await call()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"STORE_S": 0.3, "HURRIED_S": 0.3, "CANCEL_S": 0.02, "CLOSE_S": 0.05}.items():
        monkeypatch.setattr(waiting, name, seconds)


def stop(worker: Worker, task: asyncio.Task[None]) -> None:
    worker.stop()


def hurry(worker: Worker, task: asyncio.Task[None]) -> None:
    worker.hurry()


def cancel(worker: Worker, task: asyncio.Task[None]) -> None:
    task.cancel()


def retire(worker: Worker, task: asyncio.Task[None]) -> None:
    worker._order("retire")
    worker.stop()


WAYS: list[Callable[[Worker, asyncio.Task[None]], None]] = [stop, hurry, cancel, retire]


async def end(still: Still, task: asyncio.Task[None]) -> None:
    """The run ends, whatever it ends with; then the deaf calls may."""
    await asyncio.wait((task,))
    still.over.set()
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("verb", "deaf", "way"),
    [*((verb, False, stop) for verb in VERBS), *(("all", deaf, way) for deaf in (False, True) for way in WAYS)],
)
@heard_test
async def test_an_idle_worker_stops_although_the_store_hangs(
    bench: Bench, verb: str, deaf: bool, way: Callable[..., None]
) -> None:
    still = Still(deaf)
    still.verbs = set(VERBS) if verb == "all" else {verb}
    bench.driver = still.wrap(bench.driver)
    worker = bench.worker(poll_interval=0.01, heart="thread" if verb == "extend" else "loop")
    task = asyncio.create_task(worker.arun())
    if verb in ("open", "server_time", "reserve", "wait", "beat", "all") and not _lenient(worker, verb):
        await still.entered.get()
    else:
        await bench.heard_any()
    way(worker, task)
    await end(still, task)
    assert worker.health().state == "stopped"


def _lenient(worker: Worker, verb: str) -> bool:
    """A manual clock follows no store, so nobody asks for its time."""
    return verb == "server_time" and not hasattr(worker._clock, "follow")


@pytest.mark.parametrize(
    ("verb", "deaf", "way"),
    [
        *((verb, True, way) for verb in ("reserve", "settle", "close") for way in (stop, hurry)),
        *(("all", deaf, way) for deaf in (False, True) for way in WAYS),
    ],
)
@heard_test
async def test_a_busy_worker_stops_and_reports_what_it_could_not_store(
    bench: Bench, verb: str, deaf: bool, way: Callable[..., None]
) -> None:
    """Handlers see the stop at once, although a reserve is under way; what cannot be given back is reported."""
    still = Still(deaf)
    inner, bench.driver = bench.driver, still.wrap(bench.driver)
    worker = bench.worker(poll_interval=0.01, shutdown_timeout=3600, concurrency=2)

    async def handler(ctx: JobContext) -> None:
        await (ctx.cancelled.hit() if way in (stop, retire) else asyncio.Event().wait())

    worker.register("t", handler)
    await inner.enqueue([job("j")], bench.clock.now())
    task = asyncio.create_task(worker.arun())
    await bench.heard(JobStarted)
    still.verbs = set(VERBS) if verb == "all" else {verb}
    if verb in ("reserve", "all"):
        await still.entered.get()
    way(worker, task)
    await end(still, task)
    info = await inner.inspect("j", bench.clock.now())
    if verb in ("settle", "all"):
        assert [event.job.id for event in bench.of(OutcomeRefused)] == ["j"]
        assert info.state == "inflight"  # until its lease is over: nobody could tell the store
    else:
        assert info.state == ("done" if way in (stop, retire) else "ready")
        assert len(bench.of(JobSucceeded)) + len(bench.of(JobGivenBack)) == 1
    assert type(bench.events[-1]) is WorkerStopped


@pytest.mark.parametrize("way", [stop, hurry])
@heard_test
async def test_a_settle_that_fails_while_leases_are_renewed_ends_with_the_stop(
    bench: Bench, way: Callable[..., None]
) -> None:
    """A store that is full takes no outcome and renews every lease: without a limit the settler would try for ever."""
    faults = Faults()
    bench.driver = faults.wrap(bench.driver)
    faults.fail("settle", times=100_000)
    worker = bench.worker(lease=300)
    worker.register("t", lambda: None)
    await bench.enqueue(job("j"))
    task = asyncio.create_task(worker.arun())
    while faults.pending()["settle"] == 100_000:
        await asyncio.sleep(0)
    way(worker, task)
    await task
    assert [event.job.id for event in bench.of(OutcomeRefused)] == ["j"]
    assert await bench.state("j") == "inflight"


def test_the_stop_takes_no_longer_than_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    """What operations.md promises is at least what the code may take, step by step."""
    monkeypatch.undo()
    text = Path(ROOT, "docs/operations.md").read_text(encoding="utf-8")
    found = re.search(r"at most\s+`shutdown_timeout` and (\d+) s more.*?within (\d+) s", text, re.DOTALL)
    assert found is not None
    handlers = executor.INTERRUPT_GRACE_S + executor.ENDING_GRACE_S  # for those interrupted; for their transactions
    ends = 3 * waiting.CANCEL_S + waiting.CLOSE_S + waiting.CANCEL_S  # the services, the driver
    assert handlers + waiting.STORE_S + ends <= float(found[1])
    assert handlers + waiting.HURRIED_S + ends <= float(found[2])
