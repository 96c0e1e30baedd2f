"""The worker as users see it: its settings, handlers, signals, state and health.

    new ──run──► starting (opens the store) ──► running ──an order to stop──► stopping ──► stopped ──run──► …

What runs the jobs is in `services`: made for each run, once the store is open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from taskharbor.drivers.base import Driver
from taskharbor.drivers.green import threads_are_greenlets
from taskharbor.drivers.registry import open_driver
from taskharbor.model.clock import CLOCK_METHODS, Clock, StoreClock, follow
from taskharbor.model.codec import Codec, JsonCodec
from taskharbor.model.errors import BackendUnavailable, BlockingCall
from taskharbor.model.events import Observer, Observers
from taskharbor.model.main_guard import refuse_while_main_is_imported
from taskharbor.model.times import Duration
from taskharbor.model.validation import callables, explains_unknown, with_methods
from taskharbor.observe.log import logged
from taskharbor.policy.retry import DEFAULT_MAX_LOST, DEFAULT_RETRY, RetryPolicy, check_policy
from taskharbor.tasks.handler import Handler, HandlerRegistry
from taskharbor.tasks.lifespan import Lifespan, check_lifespan
from taskharbor.tasks.migration_hints import OF_WORKER_OPTIONS
from taskharbor.tasks.overrides import Overrides
from taskharbor.tasks.worker_options import lists_worker_options
from taskharbor.worker.delivery import OutcomeQueue
from taskharbor.worker.figures import FigureCounter
from taskharbor.worker.health import Health
from taskharbor.worker.injector import Injector
from taskharbor.worker.lifespan import RunningLifespan
from taskharbor.worker.middleware import CallMiddleware, Middleware
from taskharbor.worker.outage import Backoff, Outage
from taskharbor.worker.parts import WorkerParts
from taskharbor.worker.progress_notes import ProgressNotes
from taskharbor.worker.services import Services, uninterrupted
from taskharbor.worker.settings import settings
from taskharbor.worker.signals import StopSignals, own_signals
from taskharbor.worker.waiting import StopBudget, cancelled, close, end_others, first_of, hidden

if TYPE_CHECKING:
    from taskharbor.worker.supervisor.child_channel import ChildChannel

F = TypeVar("F", bound=Callable[..., Any])

logger = logging.getLogger("taskharbor.worker")


class Worker:
    """Runs jobs from a store's queues.

    `harbor.worker(…)` makes one that knows the tasks of a harbor. One that is made by hand runs the functions that are
    registered with it, by job type.

    >>> worker = Worker("memory://", queues=["mail"])
    >>> @worker.handler("email:send")
    ... async def send(to: str) -> None: ...
    >>> worker.run(until_empty=True)
    """

    _has_declared = False  # its schedules are stored: that happens once, not with every run
    _declared_lifespan: Lifespan | None = None  # the harbor's, for child processes that cannot import the worker's own

    @lists_worker_options
    @explains_unknown("worker", OF_WORKER_OPTIONS)
    def __init__(
        self,
        driver: Driver | str,
        *,
        queues: Sequence[str] | None = None,
        concurrency: int = 16,
        lease: Duration = 30,
        heartbeat: Duration | None = None,
        poll_interval: Duration = 1.0,
        shutdown_timeout: Duration = 30,
        max_lost: int = DEFAULT_MAX_LOST,
        retry: RetryPolicy = DEFAULT_RETRY,
        middleware: Sequence[Middleware] = (),
        call_middleware: Sequence[CallMiddleware] = (),
        observers: Sequence[Observer] = (),
        codec: Codec | None = None,
        clock: Clock | None = None,
        name: str | None = None,
        handlers: HandlerRegistry | None = None,
        heart: str = "thread",
        schedules: bool = True,
        outbox: str | None = None,
        lifespan: Lifespan | None = None,
        overrides: Overrides | None = None,
        child_processes: bool = True,
    ) -> None:
        """`driver` is a DSN, or a driver that is not open yet; `handlers`, if given, the handlers of a harbor."""
        check_policy(retry, "retry")
        self._settings = settings(
            queues=queues,
            concurrency=concurrency,
            lease=lease,
            heartbeat=heartbeat,
            poll_interval=poll_interval,
            shutdown_timeout=shutdown_timeout,
            max_lost=max_lost,
            name=name,
            heart=heart,
            schedules=schedules,
        )
        self._source: Driver = open_driver(driver) if isinstance(driver, str) else driver
        self._clock: Clock = StoreClock() if clock is None else with_methods(clock, "clock", *CLOCK_METHODS)
        self._handlers = handlers if handlers is not None else HandlerRegistry()
        self._codec: Codec = JsonCodec() if codec is None else with_methods(codec, "codec", "encode", "decode")
        self._observers = Observers(logged(callables(observers, "observers")), interruptible=False)
        self._outage = Outage(self._settings.name, self._clock, self._observers)
        self._parts = self._shared_parts(
            middleware=callables(middleware, "middleware"),
            call_middleware=callables(call_middleware, "call_middleware"),
            child_processes=child_processes,
            retry=retry,
            outbox=_checked_outbox(outbox),
        )
        self._lifespan = check_lifespan(lifespan)
        self._overrides = overrides if overrides is not None else Overrides()
        self._state = "new"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop, self._hurry, self._retire = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._services: Services | None = None
        self._channel: ChildChannel | None = None  # to the supervisor, which renews the leases; set before a run

    def _shared_parts(self, **parts: Any) -> Callable[..., WorkerParts]:
        """What is the same for each run."""
        return partial(
            WorkerParts,
            settings=self._settings,
            handlers=self._handlers,
            clock=self._clock,
            observers=self._observers,
            outage=self._outage,
            codec=self._codec,
            **parts,
        )

    def __repr__(self) -> str:
        return f"Worker({self.name!r}, queues={list(self._settings.queues)!r})"

    @property
    def name(self) -> str:
        """The worker's id in the store: unique for each process, even if several have the same label."""
        return self._settings.name

    # Handlers ------------------------------------------------------------------------------------------------

    def register(
        self,
        type: str,
        handler: Callable[..., Any],
        *,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        process: bool = False,
        unrecoverable: Sequence[type[BaseException]] = (),
        raw: bool = False,
    ) -> None:
        """Let a function run the jobs of a type. A second handler for a type is a ValueError.

        `retry`, `timeout`, `process`, `unrecoverable` and `raw` are the options of a task of the same names.
        """
        self._handlers.add(
            Handler(
                type,
                handler,
                codec=self._codec,
                retry=retry,
                timeout=timeout,
                process=process,
                unrecoverable=tuple(unrecoverable),
                raw=raw,
            )
        )

    def handler(self, type: str, **options: Any) -> Callable[[F], F]:
        """`register` as a decorator; its options are those of `register`."""

        def decorate(function: F) -> F:
            self.register(type, function, **options)
            return function

        return decorate

    # Running -------------------------------------------------------------------------------------------------

    def run(self, *, until_empty: bool = False) -> None:
        """Run in this thread until stopped, or with `until_empty` until no job is due and none runs.

        In the main thread TERM and INT stop it; a second one gives back what runs, a third ends the process.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise BlockingCall("worker.run() would block the running event loop; use: await worker.arun(...)")
        with own_signals():
            asyncio.run(self._run_with_signals(until_empty))

    async def arun(self, *, until_empty: bool = False) -> None:
        """The same on a running event loop, without the signals: `stop()` ends it."""
        refuse_while_main_is_imported("a worker was run")
        if threads_are_greenlets():
            raise BlockingCall(
                "a worker keeps its leases in a thread, and gevent has replaced threads by greenlets; run it in a "
                "program of its own: `taskharbor worker run`"
            )
        if self._state not in ("new", "stopped"):
            raise RuntimeError(f"{self!r} runs already; make another Worker to run two")
        if self._settings.schedules and self._handlers.schedules and "schedules" in self._source.lacks():
            raise self._source.missing(f"harbor.schedule({next(iter(self._handlers.schedules))!r}, …)")
        if self._state == "new" and self._channel is None and (note := self._handlers.note_timeouts()) is not None:
            logger.warning("%s", note)
        if self._state == "stopped":  # a stop before the first run counts for that run
            self._stop, self._hurry, self._retire = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._state = "starting"
        self._loop = asyncio.get_running_loop()
        if not len(self._handlers) and self._channel is None:  # under `worker run` the supervisor warns, once
            logger.warning("%r has no handlers, so it can run nothing: declare its tasks before it runs", self)
        driver = self._source.sibling()
        thrown_away = False
        try:
            if await self._open(driver):
                await self._serve(driver, until_empty)
        except GeneratorExit:  # this coroutine is discarded with its loop: nothing can be awaited any more
            thrown_away = True
            raise
        finally:
            self._state = "stopped"
            if not thrown_away:
                await close(driver)

    def stop(self) -> None:
        """Take no more jobs, finish what is running, then return from `run`. Safe from any thread and any handler."""
        self._order("stop")

    def hurry(self) -> None:
        """Stop, and give back what is running at once instead of waiting for the grace period."""
        self._order("hurry")

    def health(self) -> Health:
        """The health of the worker now. Safe from any thread."""
        services, error = self._services, self._outage.error
        ago, busy, fresh, running, stuck, blocked_for = None, False, False, 0, 0, 0.0
        if services is not None:
            if services.fetcher.polled_at is not None:
                ago = self._clock.monotonic() - services.fetcher.polled_at
            busy, fresh, blocked_for = (
                services.executor.room() <= 0,
                services.fetcher.is_fresh(),
                services.watch.blocked_for,
            )
            running, stuck = len(services.capacity.running), services.capacity.stuck
        slots = self._settings.concurrency
        able = error is None and stuck < slots and not blocked_for
        return Health(
            worker=self.name,
            state=self._state,
            ok=self._state == "running" and able and (busy or fresh),
            running=running,
            busy=busy,
            polled_seconds_ago=ago,
            store_lost_for=self._outage.seconds,
            store_error=type(error).__name__ if error is not None else "",
            slots=slots,
            stuck=stuck,
            blocked_for=blocked_for,
        )

    def _order(self, what: str) -> None:
        """Carry out an order of the supervisor (`messages.ProcessOrder`), or of a signal. Safe from any thread."""
        if self._loop is None:
            self._obey(what)  # before the first run: nothing waits for it yet
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._obey, what)

    def _obey(self, what: str) -> None:
        if what == "declare":
            if self._services is not None:
                self._services.scheduler.declare()
        elif what == "retire":
            self._retire.set()
        else:
            self._stop.set()
            if what == "hurry":
                self._hurry.set()

    def _on_declared(self) -> None:
        self._has_declared = True
        if self._channel is not None:
            self._channel.declared()

    async def _run_with_signals(self, until_empty: bool) -> None:
        own = asyncio.current_task()
        assert own is not None
        hidden(own)
        with StopSignals(self._on_signal):
            await self.arun(until_empty=until_empty)
        await end_others()

    def _on_signal(self, number: int) -> None:
        # Under a supervisor one signal to the whole group arrives twice: here, and as the supervisor's order.
        self._order("hurry" if number > 1 or (self._channel is None and self._stop.is_set()) else "stop")

    async def _open(self, driver: Driver) -> bool:
        """Open the store; wait for one that is away, unless that is hopeless. False: stopped meanwhile."""
        backoff = Backoff()
        while not self._stop.is_set():
            opening = asyncio.ensure_future(self._open_once(driver))
            await first_of(opening, self._stop.wait())
            if not opening.done():
                await cancelled(opening)  # a store that hangs may answer in minutes, or never
            elif await opening:
                return True
            else:
                await first_of(self._stop.wait(), asyncio.sleep(backoff.next()))
        return False

    async def _open_once(self, driver: Driver) -> bool:
        try:
            await driver.open()
            await follow(self._clock, driver.server_time)
        except (BackendUnavailable, OSError) as error:
            if isinstance(error, BackendUnavailable) and error.lasting:
                raise
            self._outage.failed("open", error)
            return False
        self._outage.answered("open")
        return True

    async def _serve(self, driver: Driver, until_empty: bool) -> None:
        function = self._overrides.of(self._lifespan) if self._lifespan is not None else None
        lifespan = None if function is None else RunningLifespan(function, self._stop.set)
        if lifespan is not None and not await lifespan.enter(self._stop, self._hurry):
            return
        services = None
        try:
            services = await self._start(driver, until_empty, lifespan)
            self._state = "running"
            await services.until(self._stop, self._retire)
        except GeneratorExit:
            raise  # this coroutine is discarded with its loop: nothing can be awaited any more
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                self._hurry.set()
            await self._end(services, lifespan)
            raise
        await self._end(services, lifespan)

    async def _start(self, driver: Driver, until_empty: bool, lifespan: RunningLifespan | None) -> Services:
        injector = Injector(self._overrides)
        if lifespan is not None:
            declared = self._overrides.of(self._declared_lifespan)
            injector = Injector(self._overrides, lifespan.function, lifespan.given, declared)
        injector.check(self._handlers)
        parts = self._parts(
            driver=driver,
            injector=injector,
            outcomes=OutcomeQueue(self._settings.concurrency),
            figures=FigureCounter(self._clock, self._settings.queues),
            notes=None if "note" in driver.unkept else ProgressNotes(self._clock),
        )
        services = self._services = Services(
            parts,
            until_empty=until_empty,
            channel=self._channel,
            declares=self._channel is None and not self._has_declared,
            on_declared=self._on_declared,
        )
        await services.start()
        return services

    async def _end(self, services: Services | None, lifespan: RunningLifespan | None) -> None:
        """`services`: None if they could not start."""
        self._state = "stopping"
        await uninterrupted(hidden(asyncio.create_task(self._stop_all(services, lifespan))), self._hurry)
        if self._channel is not None and services is not None:
            self._channel.leave()

    async def _stop_all(self, services: Services | None, lifespan: RunningLifespan | None) -> None:
        budget = StopBudget(self._hurry)
        try:
            if services is not None:
                await services.stop(self._hurry, budget)
        finally:
            if lifespan is not None:
                await lifespan.leave(budget)


def _checked_outbox(dsn: str | None) -> str | None:
    if dsn is not None:
        from taskharbor.outbox.source import RowSource

        if not isinstance(dsn, str):
            raise TypeError(f"outbox: expected the address of a database, got {type(dsn).__name__}")
        RowSource(dsn)
    return dsn
