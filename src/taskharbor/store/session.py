"""One store as a program uses it (`Store`), and one call to it (`StoreCall`): how long it takes, and what is repeated.

A call that the store refuses is repeated, five times in all, with growing, jittered pauses. For a store that does not
respond it waits until the time of the call is over. Either way the error says what was tried, for how long, and what
is unknown now.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextvars import ContextVar, Token
from copy import copy
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar

from taskharbor.drivers.base import Driver
from taskharbor.model.bounds import check_name
from taskharbor.model.clock import CLOCK_METHODS, Clock, StoreClock
from taskharbor.model.codec import Codec, JsonCodec
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.events import Event, Observer, Observers
from taskharbor.model.job import DEFAULT_QUEUE
from taskharbor.model.lease import Enqueued
from taskharbor.model.times import Duration, duration
from taskharbor.model.validation import callables, with_methods
from taskharbor.observe.log import logged
from taskharbor.store.access import AwaitedAccess, DriverPerLoop, StoreAccess, refuse_on_loop, run_on_this_thread
from taskharbor.store.enqueue import EnqueueMiddleware, Enqueuer, PrepareRecords
from taskharbor.store.portal import Portal

T = TypeVar("T")

CALL_TIMEOUT = timedelta(seconds=10)
RESOLUTION_S = 0.001  # of every clock here: what is left after rounding is not worth waiting for
MAX_TRIES = 5
FIRST_PAUSE_S = 0.05  # doubled each time, plus up to as much again: 0.75 to 1.5 seconds in all
PORTAL_SLACK_S = 1.0  # for a call whose time is over to end by itself, before its caller stops waiting for it

ISOLATED_PARTS = ("clock", "enqueuer", "is_isolated", "drivers", "awaited")
"""The attributes that `isolate` puts aside: they belong to one store and one clock."""

_limits: ContextVar[tuple[tuple[Store, float], ...]] = ContextVar("taskharbor_limits", default=())


def seconds_of(limit: Duration, name: str) -> float:
    """How long a call may take; ValueError or TypeError for an invalid limit."""
    return duration(limit, name, zero=False).total_seconds()


class StoreCall:
    """One call to a store, by the clock of its `access`. `what` names it; `doubt` says what is unknown if it fails
    after the store was reached."""

    __slots__ = (
        "_began", "access", "deadline", "doubt", "in_handler", "last", "method", "reached", "store", "tries", "what",
    )  # fmt: skip

    def __init__(self, store: Store, access: StoreAccess, seconds: float, what: str) -> None:
        self.store = store
        self.access = access
        self._began = access.time()
        self.deadline = self._began + seconds
        self.what = what
        self.doubt: Callable[[], str] | None = None
        self.method = what  # as the caller wrote it: "aresult"
        self.in_handler = False  # whether a handler of a worker made a call that may wait for jobs
        self.tries = 0
        self.reached = False  # whether the store was open, so that something may have been sent to it
        self.last: BackendUnavailable | None = None  # the error of the last try that failed in time

    def now(self) -> datetime:
        """The present, by the clock of the store."""
        return self.store.clock.now()

    def again(self, what: str = "") -> StoreCall:
        """Another call of the same caller, with as much time: for each read of one that polls."""
        return StoreCall(self.store, self.access, self.deadline - self._began, what or self.what)

    async def ask(self, send: Callable[[Driver], Awaitable[T]]) -> T:
        """What `send` returns. It may be called several times: until it succeeds, fails five times, or its time is
        over."""
        return await self.access.within(self, self._tries, send)

    async def change(self, send: Callable[[Driver], Awaitable[T]], doubt: str) -> T:
        """The same for a change. `doubt`: what is unknown if no reply comes, and what to do then."""
        self.doubt = lambda: doubt
        return await self.access.within(self, self._tries, send)

    async def _tries(self, send: Callable[[Driver], Awaitable[T]]) -> T:
        access = self.access
        closings = access.closings()
        pause = FIRST_PAUSE_S
        for number in range(1, MAX_TRIES + 1):
            self.tries += 1
            try:
                driver = await access.driver(self.deadline)
                self.reached = True
                return await send(driver)
            except BackendUnavailable as error:
                if self.is_over():
                    raise self.spent() from self.cause(error)
                self.last = error
                if number == MAX_TRIES or access.closings() != closings:
                    raise self.refused(error) from self.cause(error)
            await access.sleep(min(pause + pause * random.random(), self.left()))
            if access.closings() != closings:
                raise self.refused(self.last) from self.cause()
            if self.is_over():
                break
            pause *= 2
        raise self.spent() from self.cause()

    def left(self) -> float:
        """Seconds until the deadline, never less than 0."""
        return max(self.deadline - self.access.time(), 0.0)

    def is_over(self) -> bool:
        """Whether the deadline has come."""
        return self.left() < RESOLUTION_S

    def cause(self, error: BackendUnavailable | None = None) -> BaseException | None:
        """What the error of this call is raised from: the driver's own error, or what that was raised from."""
        error = error or self.last
        return None if error is None else error.__cause__ or error

    def refused(self, error: BackendUnavailable | None) -> BackendUnavailable:
        """The error for a call that failed in time, and is not tried again."""
        text = str(error).rstrip(".")
        elapsed = self.access.time() - self._began
        return self._error(f"{text} ({self.what}, tried {self._times()} in {elapsed:.1f} s)", error)

    def spent(self) -> BackendUnavailable:
        """The error for a call whose time is over."""
        how = "did not answer" if self.reached else "could not be opened"
        last = f"; before that: {str(self.last).rstrip('.')}" if self.last is not None else ""
        text = f"{self.what}: the store {how} within {self.deadline - self._began:g} s (tried {self._times()}{last})"
        return self._error(text, self.last)

    def _error(self, text: str, error: BackendUnavailable | None) -> BackendUnavailable:
        doubt = f". {self.doubt()}" if self.doubt is not None and self.reached else ""
        made = BackendUnavailable(text + doubt)
        if error is not None:
            made.lasting = error.lasting
            made.__cause__ = self.cause(error)
        return made

    def _times(self) -> str:
        return "once" if self.tries == 1 else f"{self.tries} times"


class Store:
    """A store, its clock and codec, and the calls to it. A `Client` has one; its handles and filters share it."""

    def __init__(
        self,
        driver_or_dsn: Driver | str | None = None,
        *,
        codec: Codec | None = None,
        clock: Clock | None = None,
        observers: Iterable[Observer] = (),
        enqueue_middleware: Iterable[EnqueueMiddleware] = (),
        default_queue: str = DEFAULT_QUEUE,
        call_timeout: Duration = CALL_TIMEOUT,
    ) -> None:
        check_name(default_queue, "default_queue")
        self.call_timeout = seconds_of(call_timeout, "call_timeout")
        self.codec: Codec = JsonCodec() if codec is None else with_methods(codec, "codec", "encode", "decode")
        self.clock: Clock = StoreClock() if clock is None else with_methods(clock, "clock", *CLOCK_METHODS)
        self.default_queue = default_queue
        self.is_isolated = False  # within a block of `taskharbor.testing.isolated`
        self.observers = Observers(logged(callables(observers, "observers")))
        self.enqueuer = Enqueuer(self.clock, callables(enqueue_middleware, "enqueue_middleware"), self.observers)
        self.portal = Portal()
        self._put_aside: list[dict[str, Any]] = []  # by each block of `isolated` that runs
        self._original: Store | None = None  # of one that `within` made
        self.use(driver_or_dsn)

    def __repr__(self) -> str:
        return f"Store({self.drivers!r})"

    @property
    def driver(self) -> Driver:
        """The driver that was given, or the one the DSN names."""
        return self.drivers.driver

    @property
    def dsn(self) -> str | None:
        """The address of the store, with its password; None if a driver was given."""
        return self.drivers.dsn

    def emit(self, event: Event) -> None:
        """Tell the observers of something that was done here."""
        self.observers.emit(event)

    # Calls -------------------------------------------------------------------------------------------------------

    def call(self, access: StoreAccess, what: str, seconds: float | None = None) -> StoreCall:
        """A call that begins now. Its time is that of any call to this store, unless `seconds` says otherwise."""
        return StoreCall(self, access, self._seconds() if seconds is None else seconds, what)

    def blocking(
        self,
        begin: Callable[[StoreAccess], Coroutine[Any, Any, T]],
        method: str,
        *,
        polls: bool = False,
        instead: str = "",
    ) -> T:
        """Run a coroutine for a caller that blocks: on this thread if the driver can, otherwise on the portal.

        It ends by the deadline of its call. If a driver on the portal does not end then, the caller stops waiting for
        it shortly afterwards. For one that `polls` there is no such limit. `instead`: what to use on an event loop,
        if it is not the awaitable twin.
        """
        refuse_on_loop(method, instead)
        access = self.drivers.blocking()
        if access is not None:
            return run_on_this_thread(begin, access)
        limit = None if polls else self._seconds() + PORTAL_SLACK_S
        return self.portal.call(lambda: begin(self.awaited), method, limit)

    def enqueue(self, prepare: PrepareRecords, connection: Any, method: str) -> list[Enqueued]:
        """Store the records that `prepare` returns; blocks until they are stored. With a `connection` of the caller's,
        on that one and within its transaction."""
        if connection is None:
            return self.blocking(lambda access: self.enqueuer.store(prepare, self.call(access, "enqueue")), method)
        refuse_on_loop(method)
        return self.enqueuer.store_on_sync(connection, self.drivers.unopened(), prepare)

    async def aenqueue(self, prepare: PrepareRecords, connection: Any) -> list[Enqueued]:
        """The same, awaited."""
        if connection is None:
            return await self.enqueuer.store(prepare, self.call(self.awaited, "enqueue"))
        return await self.enqueuer.store_on(connection, self.drivers.unopened(), prepare)

    # Time limits -------------------------------------------------------------------------------------------------

    def _seconds(self) -> float:
        limits = _limits.get()
        if limits and self._original is None:
            return next((seconds for store, seconds in reversed(limits) if store.is_same(self)), self.call_timeout)
        return self.call_timeout

    def within(self, seconds: Duration) -> Self:
        """This store with another time limit for each call, retries included."""
        other = copy(self)
        other._original = self._original or self
        other.call_timeout = seconds_of(seconds, "within")
        return other

    def begin_limit(self) -> Token[tuple[tuple[Store, float], ...]]:
        """Let the time limit of this store, which `within` made, hold for all calls to the original until
        `end_limit`."""
        return _limits.set((*_limits.get(), (self, self.call_timeout)))

    def end_limit(self, token: Token[tuple[tuple[Store, float], ...]]) -> None:
        """End what `begin_limit` began."""
        _limits.reset(token)

    def is_same(self, other: Store) -> bool:
        """Whether the other one is this store, perhaps with another time limit."""
        return (self._original or self) is (other._original or other)

    # Another store, for a while ----------------------------------------------------------------------------------

    def use(self, driver_or_dsn: Driver | str | None) -> None:
        """Use another store from now on. For programs that run an application's tasks on a store of their choice,
        before its first call: what was opened before stays open."""
        self.drivers = DriverPerLoop(driver_or_dsn, self.clock)
        self.awaited: StoreAccess = AwaitedAccess(self.drivers)

    def isolate(self, driver_or_dsn: Driver | str, clock: Clock | None) -> dict[str, Any]:
        """Use an empty store and another clock until `restore`; returns what to restore. For tests: see
        `taskharbor.testing.isolated`."""
        before = {name: getattr(self, name) for name in ISOLATED_PARTS}
        if clock is not None:
            self.clock = with_methods(clock, "clock", *CLOCK_METHODS)
        elif type(self.clock) is StoreClock:  # which follows the other store
            self.clock = StoreClock()
        self.enqueuer = self.enqueuer.on_clock(self.clock)
        self.is_isolated = True
        self.use(driver_or_dsn)
        self._put_aside.append(before)
        return before

    def restore(self, before: dict[str, Any]) -> DriverPerLoop:
        """Use the former store and clock again; returns the drivers that were used meanwhile, for closing.

        A block that began later and still runs, as where tests run at once, keeps its own: the real store must not come
        back before the last block has ended.
        """
        place = next(index for index, each in enumerate(self._put_aside) if each is before)
        del self._put_aside[place]
        if place < len(self._put_aside):
            later = self._put_aside[place]  # has put aside what this block used
            drivers: DriverPerLoop = later["drivers"]
            later.update(before)
            return drivers
        drivers = self.drivers
        for name, value in before.items():
            setattr(self, name, value)
        return drivers

    def close_isolated(self, drivers: DriverPerLoop) -> None:
        """Close what blocking calls have opened within a block."""
        drivers.close_blocking()
        if self.portal.loop is not None:
            self.portal.call(drivers.close, "isolated", self.call_timeout + PORTAL_SLACK_S)

    # Closing -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close what blocking calls opened, and end their thread if there is one. The next call opens it again."""
        refuse_on_loop("client.close")
        self.drivers.close_blocking()
        if self.portal.loop is not None:
            self.portal.call(self._close_drivers, "client.close", self.call_timeout + PORTAL_SLACK_S)
        self.portal.stop()

    async def aclose(self) -> None:
        """Close what this event loop opened, and what blocking calls did."""
        await self._close_drivers()
        if self.portal.loop is not None or self.drivers.is_blocking():
            await asyncio.to_thread(self.close)

    async def _close_drivers(self) -> None:
        """Close the running loop's driver. A store that does not respond must not keep a program from ending: it is
        left after the time of any call."""
        try:
            async with asyncio.timeout(self.call_timeout) as limit:
                await self.drivers.close()
        except TimeoutError:
            if not limit.expired():
                raise


def one_connection(connections: Sequence[Any]) -> Any:
    """The connection that all jobs of a call share; ValueError if they differ, for one transaction has one
    connection."""
    first = connections[0] if connections else None
    if any(connection is not first for connection in connections):
        raise ValueError("expected one connection= for all jobs of a call, got different ones; enqueue them separately")
    return first
