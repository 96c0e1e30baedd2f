"""The worker: wires the services together, and starts and stops them in order. It does nothing else itself.

start: driver ► heart ► settler ► executor's deadlines ► upkeep ► fetcher
stop:  fetcher ► executor (grace, then give back) ► settler ► upkeep ► heart ► driver
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from taskharbor.drivers.contract import Driver, SqlDriver
from taskharbor.drivers.registry import open_driver
from taskharbor.model.clock import Clock, StoreClock
from taskharbor.model.codec import Codec, JsonCodec
from taskharbor.model.errors import BackendUnavailable, TaskHarborError
from taskharbor.model.events import Observer, Observers, WorkerStarted, WorkerStopped, WorkerStopping
from taskharbor.model.times import Duration
from taskharbor.observe.log import LogObserver
from taskharbor.policy.retry import DEFAULT_MAX_LOST, DEFAULT_RETRY, RetryPolicy
from taskharbor.tasks.handler import Handler, HandlerRegistry
from taskharbor.worker.binder import Binder
from taskharbor.worker.executor import Executor
from taskharbor.worker.fetcher import Fetcher
from taskharbor.worker.health import Health
from taskharbor.worker.heart import Heart, LoopHeart, LoopWatch, ThreadHeart
from taskharbor.worker.middleware import Middleware
from taskharbor.worker.outage import Backoff, Outage
from taskharbor.worker.run import Run
from taskharbor.worker.service import Service
from taskharbor.worker.settings import settings
from taskharbor.worker.settler import Settler
from taskharbor.worker.upkeep import Upkeep, follow

F = TypeVar("F", bound=Callable[..., Any])


class Worker:
    """Runs jobs from a store's queues.

    >>> worker = Worker("memory://", queues=["mail"])
    >>> @worker.handler("email:send")
    ... async def send(to: str) -> None: ...
    >>> worker.run(until_empty=True)
    """

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
        observers: Sequence[Observer] = (),
        codec: Codec | None = None,
        clock: Clock | None = None,
        name: str | None = None,
        handlers: HandlerRegistry | None = None,
        heart: str = "thread",
    ) -> None:
        if not callable(retry):
            raise TypeError(f"retry: expected a policy such as Exponential(), got {type(retry).__name__}")
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
        )
        self._source: Driver = open_driver(driver) if isinstance(driver, str) else driver
        self._retry = retry
        self._middleware = tuple(middleware)
        self._observers = Observers((LogObserver(), *observers))
        self._codec = codec or JsonCodec()
        self._clock: Clock = clock or StoreClock()
        self._handlers = handlers if handlers is not None else HandlerRegistry()
        self._outage = Outage(self._settings.name, self._clock, self._observers)
        self._state = "new"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._fetcher: Fetcher | None = None
        self._executor: Executor | None = None

    def __repr__(self) -> str:
        return f"Worker({self.name!r}, queues={list(self._settings.queues)!r})"

    @property
    def name(self) -> str:
        """The worker's id in the store: unique for each process, whatever it is named."""
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
    ) -> None:
        """Have jobs of a type run by a function. Two handlers for one type are a ValueError."""
        self._handlers.add(
            Handler(
                type,
                handler,
                codec=self._codec,
                retry=retry,
                timeout=timeout,
                process=process,
                unrecoverable=tuple(unrecoverable),
            )
        )

    def handler(self, type: str, **options: Any) -> Callable[[F], F]:
        """`register` as a decorator."""

        def decorate(function: F) -> F:
            self.register(type, function, **options)
            return function

        return decorate

    # Running -------------------------------------------------------------------------------------------------

    def run(self, *, until_empty: bool = False) -> None:
        """Run in this thread until stopped. In the main thread TERM and INT stop it; a second one hurries."""
        asyncio.run(self._run_with_signals(until_empty))

    async def arun(self, *, until_empty: bool = False) -> None:
        """Run until stopped, or until a reserve gives nothing and nothing runs."""
        if self._state in ("running", "stopping"):
            raise RuntimeError(f"{self!r} runs already; make another Worker to run two")
        self._loop = asyncio.get_running_loop()
        self._stop, self._hurry = asyncio.Event(), asyncio.Event()
        driver = self._source.sibling()
        try:
            if await self._open(driver):
                await self._serve(driver, until_empty)
        finally:
            self._state = "stopped"
            await driver.close()

    def stop(self) -> None:
        """Take no more jobs, finish what runs, then return from `run`. Safe from any thread and from a handler."""
        self._call(self._stop.set)

    def hurry(self) -> None:
        """Stop, and give what runs back at once instead of waiting for the grace period."""
        self._call(self._stop.set)
        self._call(self._hurry.set)

    def health(self) -> Health:
        """How the worker is now. Safe from any thread."""
        polled_at = self._fetcher.polled_at if self._fetcher is not None else None
        ago = None if polled_at is None else self._clock.monotonic() - polled_at
        busy = self._executor is not None and self._executor.room() <= 0
        error = self._outage.error
        return Health(
            worker=self.name,
            state=self._state,
            ok=self._state == "running" and error is None and (busy or ago is not None),
            running=len(self._executor.running) if self._executor is not None else 0,
            polled_seconds_ago=ago,
            store_lost_for=self._outage.seconds,
            store_error=type(error).__name__ if error is not None else "",
        )

    async def _run_with_signals(self, until_empty: bool) -> None:
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT) if threading.current_thread() is threading.main_thread() else ()
        try:
            for number in signals:
                loop.add_signal_handler(number, self._on_signal)
        except NotImplementedError:
            signals = ()  # no such loop on Windows: there Ctrl-C cancels the run, which gives back what runs
        try:
            await self.arun(until_empty=until_empty)
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    def _on_signal(self) -> None:
        if self._stop.is_set():
            self.hurry()
        else:
            self._stop.set()

    async def _open(self, driver: Driver) -> bool:
        """Open the store and follow its clock; wait for one that is away. False: stopped before it came back."""
        backoff = Backoff()
        while not self._stop.is_set():
            try:
                await driver.open()
                await follow(self._clock, driver)
                self._outage.answered("open")
                return True
            except (BackendUnavailable, OSError) as error:
                self._outage.failed("open", error)
            stop = asyncio.ensure_future(self._stop.wait())
            await asyncio.wait((stop,), timeout=backoff.next())
            stop.cancel()
        return False

    async def _serve(self, driver: Driver, until_empty: bool) -> None:
        config, held = self._settings, dict[str, Run]()
        executor = Executor(
            settings=config,
            handlers=self._handlers,
            middleware=self._middleware,
            retry=self._retry,
            clock=self._clock,
            observers=self._observers,
            held=held,
            submit=lambda run, outcome: settler.submit(run, outcome),
            transactions=cast(SqlDriver, driver) if hasattr(driver, "transaction") else None,
        )
        settler = Settler(
            worker=config.name,
            driver=driver,
            clock=self._clock,
            outage=self._outage,
            observers=self._observers,
            held=held,
            bound=max(64, config.concurrency * 4),
            on_settled=executor.on_settled,
        )
        upkeep = Upkeep(
            settings=config,
            driver=driver,
            clock=self._clock,
            outage=self._outage,
            running=lambda: len(executor.running),
        )
        fetcher = Fetcher(
            settings=config,
            driver=driver,
            clock=self._clock,
            outage=self._outage,
            held=held,
            room=lambda: 0 if settler.behind else executor.room(),
            changed=executor.changed,
            start=executor.start,
            binder=Binder(
                driver=driver, clock=self._clock, handlers=self._handlers, codec=self._codec, outage=self._outage
            ),
            until_empty=until_empty,
        )
        heart = self._make_heart(driver, held, executor)
        self._fetcher, self._executor = fetcher, executor
        await heart.start()
        for service in (settler, executor.deadlines, upkeep, fetcher):
            service.start()
        self._state = "running"
        self._observers.emit(WorkerStarted(config.name, config.queues))
        try:
            await self._until_stopped(fetcher, settler, executor.deadlines, upkeep)
        except asyncio.CancelledError:
            self._hurry.set()
            raise
        finally:
            self._state = "stopping"
            executor.close()
            self._observers.emit(WorkerStopping(config.name, len(executor.running)))
            await fetcher.stop()
            await executor.stop(self._hurry)
            await settler.stop()
            await upkeep.stop()
            await heart.stop()
            self._observers.emit(WorkerStopped(config.name))

    def _make_heart(self, driver: Driver, held: dict[str, Run], executor: Executor) -> LoopHeart | ThreadHeart:
        config, loop = self._settings, asyncio.get_running_loop()

        def on_lost(run: Run, error: TaskHarborError) -> None:
            loop.call_soon_threadsafe(executor.lose, run, error)

        heart = Heart(
            clock=self._clock,
            outage=self._outage,
            held=held,
            lease=config.lease,
            every=config.heartbeat,
            on_lost=on_lost,
        )
        if config.heart == "thread":
            return ThreadHeart(heart, driver.sibling(), self._clock, LoopWatch(config.name, held, self._observers))
        return LoopHeart(heart, driver, self._clock)

    async def _until_stopped(self, *services: Service) -> None:
        """Until `stop`, or until the fetcher has ended by itself. A service that broke ends the worker loudly."""
        stop = asyncio.ensure_future(self._stop.wait())
        try:
            done, _ = await asyncio.wait(
                (stop, *(service.task for service in services)), return_when=asyncio.FIRST_COMPLETED
            )
            for finished in done:
                await finished
        finally:
            stop.cancel()

    def _call(self, function: Callable[[], None]) -> None:
        if self._loop is None or self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(function)
