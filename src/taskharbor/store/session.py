"""One store as a program uses it: its clock and codec, the calls to it, and closing it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from copy import copy
from datetime import timedelta
from typing import Any, Self, TypeVar

from taskharbor.drivers.base import Driver
from taskharbor.model.bounds import check_name
from taskharbor.model.clock import CLOCK_METHODS, Clock, StoreClock
from taskharbor.model.codec import Codec, JsonCodec
from taskharbor.model.current_job import is_in_handler
from taskharbor.model.events import Event, Observer, Observers
from taskharbor.model.job import DEFAULT_QUEUE
from taskharbor.model.lease import Enqueued
from taskharbor.model.times import Duration, duration
from taskharbor.model.validation import callables, with_methods
from taskharbor.observe.log import logged
from taskharbor.store.access import AwaitedAccess, StoreAccess, StoreCall, refuse_on_loop, run_on_this_thread
from taskharbor.store.enqueue import EnqueueMiddleware, Enqueuer, PrepareRecords
from taskharbor.store.open_drivers import DriverPerLoop
from taskharbor.store.portal import Portal

T = TypeVar("T")

CALL_TIMEOUT = timedelta(seconds=10)
PORTAL_SLACK_S = 1.0  # for a call whose time is over to end by itself, before its caller stops waiting for it

ISOLATED_PARTS = ("clock", "enqueuer", "is_isolated", "drivers", "awaited")
"""The attributes that `isolate` puts aside: they belong to one store and one clock."""

NOTHING: Mapping[str, Any] = {}
_limits: ContextVar[tuple[tuple[Store, float], ...]] = ContextVar("taskharbor_limits", default=())


def seconds_of(limit: Duration, name: str) -> float:
    """How long a call may take; ValueError or TypeError for an invalid limit."""
    return duration(limit, name, zero=False).total_seconds()


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

    def call(
        self,
        what: str,
        access: StoreAccess | None = None,
        *,
        seconds: float | None = None,
        method: str = "",
        in_handler: bool = False,
    ) -> StoreCall:
        """A call that begins now; awaited, unless `access` says otherwise. Its time is that of any call to this store,
        unless `seconds` does."""
        seconds = self._seconds() if seconds is None else seconds
        return StoreCall(self, access or self.awaited, seconds, what, method, in_handler)

    def blocking(
        self,
        work: Callable[..., Coroutine[Any, Any, T]],
        what: str,
        method: str,
        args: tuple[Any, ...] = (),
        named: Mapping[str, Any] = NOTHING,
        *,
        polls: bool = False,
        instead: str = "",
    ) -> T:
        """Run `work(call, *args, **named)` for a caller that blocks: on this thread if the driver can, otherwise on
        the portal.

        It ends by the deadline of its call. If a driver on the portal does not end then, the caller stops waiting for
        it shortly afterwards. For one that `polls` there is no such limit. `instead`: what to use on an event loop,
        if it is not the awaitable twin.
        """
        if asyncio._get_running_loop() is not None:
            refuse_on_loop(method, instead)
        in_handler = polls and is_in_handler()  # here: on the portal it runs in another thread
        access = self._blocking_access()
        if access is not None:
            return run_on_this_thread(work, self.call(what, access, in_handler=in_handler), *args, **named)
        limit = None if polls else self._seconds() + PORTAL_SLACK_S
        return self.portal.call(lambda: work(self.call(what, in_handler=in_handler), *args, **named), method, limit)

    def _blocking_access(self) -> StoreAccess | None:
        return self.drivers.access or self.drivers.blocking()

    def enqueue(self, prepare: PrepareRecords, connection: Any, method: str) -> list[Enqueued]:
        """Store the records that `prepare` returns; blocks until they are stored. With a `connection` of the caller's,
        on that one and within its transaction."""
        if connection is None:
            return self.blocking(self.enqueuer.store, "enqueue", method, (prepare,))
        refuse_on_loop(method)
        return self.enqueuer.store_on_sync(connection, self.drivers.unopened(), prepare)

    async def aenqueue(self, prepare: PrepareRecords, connection: Any) -> list[Enqueued]:
        """The same, awaited."""
        if connection is None:
            return await self.enqueuer.store(self.call("enqueue"), prepare)
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

    @contextmanager
    def by_clock(self, clock: Clock | None) -> Iterator[None]:
        """Use another clock on the same store for a block; None: the same clock. For tests."""
        before = self.clock, self.enqueuer
        if clock is not None:
            self.clock = with_methods(clock, "clock", *CLOCK_METHODS)
            self.enqueuer = self.enqueuer.on_clock(self.clock)
        try:
            yield
        finally:
            self.clock, self.enqueuer = before

    def is_within_block(self) -> bool:
        """Whether a block of `isolated` runs."""
        return (self._original or self).is_isolated

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
        if self.portal.loop is not None or self.drivers.access is not None:
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


class StoreOfHandle:
    """The attribute `_store` of a handle: the store in which its job is. `_stored`, a slot of its class, has that store
    and whether it was isolated. A handle from a block of `isolated` is refused after the block, where it would ask the
    real store for a job that was never there."""

    def __get__(self, handle: Any, owner: type) -> Store:
        store: Store
        store, was_isolated = handle._stored
        if was_isolated and not store.is_within_block():
            raise RuntimeError(
                f"{handle!r} was made within a block of isolated(…) that is over, and its store with it: ask it within "
                "the block, or make a handle of the real store with harbor.job(id) or harbor.flow(id)"
            )
        return store

    def __set__(self, handle: Any, store: Store) -> None:
        handle._stored = store, store.is_within_block()
