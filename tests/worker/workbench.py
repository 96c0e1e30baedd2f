"""A worker on a private memory store with a manual clock, and the signals that tests wait on."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from taskharbor.drivers import Driver, JobInfo, JobRecord, open_driver
from taskharbor.events import Event, JobReserved
from taskharbor.model.clock import Clock
from taskharbor.model.events import Observer, Observers
from taskharbor.tasks.handler import HandlerRegistry
from taskharbor.testing import ManualClock
from taskharbor.worker import Worker
from taskharbor.worker.delivery import OutcomeQueue
from taskharbor.worker.outage import Outage
from taskharbor.worker.parts import WorkerParts
from taskharbor.worker.settings import settings

PATIENCE = 30  # seconds of real time after which a test gives up waiting; never a figure


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine; hanging is a failure, not a wait."""

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await test

    asyncio.run(bounded())


def waits_for(event: asyncio.Event) -> Callable[[], Coroutine[Any, Any, None]]:
    """A handler that runs until an event is set."""

    async def handler() -> None:
        await event.wait()

    return handler


def parts_of(driver: Driver, clock: Clock, observers: Sequence[Observer] = (), **more: Any) -> WorkerParts:
    """What the parts of a worker named "w" share, for a test of one of them."""
    told = Observers(observers)
    given: dict[str, Any] = {"settings": settings(name="w"), "handlers": HandlerRegistry(), **more}
    outage, outcomes = Outage("w", clock, told), OutcomeQueue(given["settings"].concurrency)
    return WorkerParts(driver=driver, clock=clock, observers=told, outage=outage, outcomes=outcomes, **given)


class Bench:
    """One store, one clock, any number of workers; every event is kept.

    `deaf_to`: events that no observer wants. A worker takes a shorter path when no observer wants its reserves, as in
    production, so most tests must hold on both.
    """

    def __init__(self, driver: Driver | None = None, deaf_to: tuple[type[Event], ...] = ()) -> None:
        self.driver = driver or open_driver("memory://")
        self.clock = ManualClock()
        self.events: list[Event] = []
        self.deaf_to = deaf_to
        self._heard = asyncio.Event()

    def wants(self, event_type: type[Event]) -> bool:
        return event_type not in self.deaf_to

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self._loop.call_soon_threadsafe(self._heard.set)

    def worker(self, **options: Any) -> Worker:
        self._loop = asyncio.get_running_loop()
        options.setdefault("heart", "loop")
        return Worker(self.driver, clock=self.clock, observers=[self], **options)

    async def heard(self, kind: type[Event], count: int = 1) -> list[Any]:
        """Wait until `count` events of a kind were emitted."""
        while len(found := self.of(kind)) < count:
            self._heard.clear()
            await self._heard.wait()
        return found

    async def run_until(self, kind: type[Event], worker: Worker, end: Callable[[], None]) -> None:
        """Run a worker until an event of a kind was emitted, then end it by `worker.stop` or `worker.hurry`."""
        running = asyncio.create_task(worker.arun())
        await self.heard(kind)
        end()
        await running

    async def heard_any(self) -> None:
        """Wait for the first event."""
        while not self.events:
            self._heard.clear()
            await self._heard.wait()

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if type(event) is kind]

    async def enqueue(self, *jobs: JobRecord) -> None:
        await self.driver.enqueue(jobs, self.clock.now())

    async def info(self, id: str) -> JobInfo:
        return await self.driver.inspect(id, self.clock.now())

    async def state(self, id: str) -> str:
        return (await self.info(id)).state

    async def extended(self, id: str, to: datetime) -> None:
        """Wait until the lease on a job ends at that moment."""
        while (await self.info(id)).lease_expires_at != to:
            await asyncio.sleep(0)

    async def heart_sleeps(self) -> None:
        """Wait until a heart in a thread of its own sleeps on the clock: an advance before that would not wake it."""
        while all(loop is self._loop for _, loop in list(self.clock._sleepers.values())):
            await asyncio.sleep(0)

    async def ran(self, handler: Callable[..., Any], *jobs: JobRecord, **options: Any) -> Worker:
        """A worker that has run jobs of the type "t", and what they brought, until there were no more."""
        worker = self.worker(**options)
        worker.register("t", handler)
        await self.enqueue(*jobs)
        await worker.arun(until_empty=True)
        return worker

    @asynccontextmanager
    async def serving(self, handler: Callable[..., Any], *jobs: JobRecord, **options: Any) -> AsyncIterator[Worker]:
        """A worker that runs jobs of the type "t" in the background; stopped at the end."""
        worker = self.worker(**options)
        worker.register("t", handler)
        await self.enqueue(*jobs)
        async with self.running(worker):
            yield worker

    @asynccontextmanager
    async def running(self, worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
        """The worker in the background; stopped at the end."""
        task = asyncio.create_task(worker.arun())
        try:
            yield task
        finally:
            worker.hurry()
            await task


def job(id: str, type: str = "t", **fields: Any) -> JobRecord:
    return JobRecord(id=id, type=type, **fields)


Test = Callable[..., Coroutine[Any, Any, None]]


def bench_test(test: Test) -> Callable[..., None]:
    """A test on a fresh bench and a loop of its own: once with an observer of all events, once without JobReserved.

    One that waits for a JobReserved itself runs only with that observer. What it takes after its bench are parameters
    and fixtures.
    """
    return _wrapped(test, [()] if "JobReserved" in test.__code__.co_names else [(), (JobReserved,)])


def heard_test(test: Test) -> Callable[..., None]:
    """The same for a test that checks all events: it runs only with the observer of all events."""
    return _wrapped(test, [()])


def _wrapped(test: Test, ways: list[tuple[type[Event], ...]]) -> Callable[..., None]:
    def wrapped(**values: Any) -> None:
        async def go(deaf_to: tuple[type[Event], ...]) -> None:
            await test(Bench(deaf_to=deaf_to), **values)

        for deaf_to in ways:
            run(go(deaf_to))

    wrapped.__name__ = test.__name__
    wrapped.__doc__ = test.__doc__
    _, *rest = inspect.signature(test).parameters.values()
    wrapped.__signature__ = inspect.Signature(rest)  # type: ignore[attr-defined]  # pytest reads it
    return wrapped
