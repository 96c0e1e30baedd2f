"""Running what is due, in the test's own process, one job after the other."""

from __future__ import annotations

import asyncio
import inspect
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from taskharbor.drivers.base import Driver
from taskharbor.drivers.dsn import scheme_of
from taskharbor.model.errors import BlockingCall
from taskharbor.model.events import Event, JobStarted, Observers
from taskharbor.model.job import DEFAULT_QUEUE, OPERATIONS_QUEUE, JobRecord
from taskharbor.tasks.flow_metadata import BIND_KEY
from taskharbor.tasks.task import Task

if TYPE_CHECKING:
    from taskharbor.harbor import Harbor

T = TypeVar("T")


async def adrain(harbor: Harbor) -> int:
    """Run everything that is due, in all queues, and what that enqueues; return the number of executions.

    The real worker does it, with one slot, so that the order is the store's. What is scheduled for later, or waits
    for a retry, stays: move the harbor's clock and drain again. Jobs of a queue that `harbor.worker()` does not serve
    run too, with a warning. The harbor's schedules are stored first, as when a worker starts, and what is due is fired,
    with the `catch_up` and `overlap` of each.
    """
    started = 0
    ran: set[str] = set()

    def count(event: Event) -> None:
        nonlocal started
        if isinstance(event, JobStarted):
            started += 1
            ran.add(event.job.queue)

    _refuse_stopped_time(harbor)
    await _declare(harbor)
    async with AsyncExitStack() as lifespans:
        options: dict[str, Any] = {}
        while True:
            before = started
            async with _opened(harbor) as driver:
                fired = await _fire(harbor, driver)
                found = await driver.queues()
            if found:
                queues = [queue for queue in found if queue != OPERATIONS_QUEUE] or [DEFAULT_QUEUE]
                options = options or await _worker_options(harbor, lifespans)
                options["observers"] = (*harbor.observers, count)
                await harbor.worker(queues=queues, **options).arun(until_empty=True)
            if started == before and not fired:
                break
    strange = sorted(ran.difference(harbor.declared_queues))
    if strange:
        warnings.warn(
            f"drain ran jobs of the queues {', '.join(map(repr, strange))}, which no task declares: harbor.worker() "
            "would not have run them; list them in Harbor(queues=[…])",
            stacklevel=2,
        )
    return started


def _refuse_stopped_time(harbor: Harbor) -> None:
    """RuntimeError if freezegun has stopped the clock by which calls to PostgreSQL wait: they would for ever."""
    freezegun: Any = sys.modules.get("freezegun.api")
    frozen = freezegun is not None and freezegun.freeze_factories and "taskharbor" not in freezegun.ignore_lists[-1]
    if frozen and scheme_of(harbor._store.dsn or "").startswith("postgres"):
        raise RuntimeError(
            "drain on PostgreSQL while freezegun has stopped the time: it stops the monotonic clock, too, by which "
            "calls to a server wait and end. Give the harbor a ManualClock, use time-machine, or "
            'freeze_time(…, ignore=["taskharbor", "asyncio", "psycopg"])'
        )


async def _worker_options(harbor: Harbor, lifespans: AsyncExitStack) -> dict[str, Any]:
    """The options of all workers of a drain. They share the harbor's lifespan, which is entered here."""
    options: dict[str, Any] = {"concurrency": 1, "heart": "loop", "schedules": False}
    lifespan = harbor._overrides.of(harbor._lifespan)
    if lifespan is not None:
        given = await lifespans.enter_async_context(lifespan())
        options["lifespan"] = lambda: nullcontext(given)
    return options


async def _declare(harbor: Harbor) -> None:
    """Store the harbor's schedules."""
    declared = harbor.handlers.schedules
    if not declared:
        return
    from taskharbor.schedules.declare import declare

    async with _opened(harbor) as driver:
        await declare(driver, declared, harbor.clock, Observers(harbor.observers))


async def _fire(harbor: Harbor, driver: Driver) -> int:
    """Fire the schedules that are due: those that were added, and those that this harbor declares."""
    queues, cursor = set[str](), None
    while True:
        page = await driver.schedules(cursor=cursor, limit=1_000)
        queues |= {row.queue for row in page.items}
        cursor = page.cursor
        if cursor is None:
            break
    if not queues:
        return 0
    from taskharbor.schedules.firing import ScheduleRunner

    observers, declared = Observers(harbor.observers), harbor.handlers.schedules
    runner = ScheduleRunner(driver, harbor.clock, observers, worker="drain", queues=queues, declared=declared)
    return (await runner.fire_due()).fired


def drain(harbor: Harbor) -> int:
    """`adrain` for synchronous tests."""
    return _blocking(adrain(harbor), "drain", "adrain")


async def aenqueued(harbor: Harbor, task: Task[..., Any], /, **arguments: Any) -> list[JobRecord]:
    """The jobs of a task in the store, in any state, whose arguments include these; in the order of their ids."""
    refuse_unknown(task, arguments)
    found: list[JobRecord] = []
    cursor: str | None = None
    async with _opened(harbor) as driver:
        while True:
            page = await driver.list(type=task.name, cursor=cursor, now=harbor.clock.now())
            found.extend(info.job for info in page.items if includes(task, info.job, arguments))
            cursor = page.cursor
            if cursor is None:
                return found


def enqueued(harbor: Harbor, task: Task[..., Any], /, **arguments: Any) -> list[JobRecord]:
    """`aenqueued` for synchronous tests: `assert enqueued(harbor, send_email, to="ada@example.com")`."""
    return _blocking(aenqueued(harbor, task, **arguments), "enqueued", "aenqueued")


def refuse_unknown(task: Task[..., Any], arguments: Mapping[str, Any]) -> None:
    """Raise TypeError if the task has no parameter of such a name."""
    parameters = inspect.signature(task.function).parameters.values()
    unknown = arguments.keys() - {parameter.name for parameter in parameters}
    if unknown and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        raise TypeError(f"{task.name} has no parameter {', '.join(sorted(unknown))}: nothing could ever match")


def includes(task: Task[..., Any], job: JobRecord, arguments: Mapping[str, Any]) -> bool:
    """Whether the arguments of a job of this task include these."""
    signature = task.handler.signature
    waits = BIND_KEY in job.metadata  # for a result, which is not in its payload yet
    given = signature.decode_partial(job.payload) if waits else signature.decode(job.payload)
    return all(name in given and given[name] == value for name, value in arguments.items())


@asynccontextmanager
async def _opened(harbor: Harbor) -> AsyncIterator[Driver]:
    driver = harbor.driver.sibling()
    await driver.open()
    try:
        yield driver
    finally:
        await driver.close()


def _blocking(awaitable: Awaitable[T], name: str, twin: str) -> T:
    async def run() -> T:
        return await awaitable

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        running = False
    else:
        running = True
    if not running:
        return asyncio.run(run())  # outside of the except: otherwise each error of a handler would show this one first
    getattr(awaitable, "close", lambda: None)()
    raise BlockingCall(f"{name}() would block the running event loop; use: await {twin}(…)")
