"""The two ways to reach a store: awaited on the running event loop, or blocking on the calling thread.

What a client does (retries, budgets, enqueue middleware, events) is written once, as coroutines over `StoreAccess`. An
event loop runs them over `AwaitedAccess`. Over `BlockingAccess` none of them ever suspends, so `run_on_this_thread`
runs them with a single step: no loop, no other thread.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from taskharbor.client.portal import stay_at_exit
from taskharbor.drivers.base import BlockingCalls, Driver
from taskharbor.drivers.signal_safe import ClosedFlag, Places
from taskharbor.model.errors import BackendUnavailable

if TYPE_CHECKING:
    from taskharbor.client.budget import Budget
    from taskharbor.client.driver_per_loop import DriverPerLoop

T = TypeVar("T")

Follow = Callable[[Callable[[], Awaitable[datetime]]], Awaitable[Any]]


class StoreAccess(Protocol):
    """One way to reach the store."""

    def time(self) -> float:
        """Seconds of the clock that deadlines are given in."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`, or sooner when this way is closed."""

    async def driver(self, deadline: float) -> Driver:
        """The open driver. The first call opens it; a call now and then follows the store's clock."""

    async def within(self, budget: Budget, call: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Await `call(*args)`; when the budget's time is over, the error that says so."""

    def closings(self) -> int:
        """How often this way was closed: a call under way that sees it change does not open the store again."""

    def is_closed(self) -> bool:
        """Whether this way is closed for good: then waiting for a result ends."""


class AwaitedAccess:
    """The driver of the running event loop."""

    def __init__(self, drivers: DriverPerLoop) -> None:
        self._drivers = drivers

    def time(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def driver(self, deadline: float) -> Driver:
        return await self._drivers.get()

    async def within(self, budget: Budget, call: Callable[..., Awaitable[T]], *args: Any) -> T:
        limit = asyncio.timeout_at(budget.deadline)  # `left()` reads the clock twice more: 2 % of a call
        try:
            async with limit:
                return await call(*args)
        except TimeoutError:
            if not limit.expired():
                raise
        raise budget.spent() from budget.cause()

    def closings(self) -> int:
        return self._drivers.closings()

    def is_closed(self) -> bool:
        return False  # a loop's driver is opened again by the next call


class BlockingAccess:
    """The driver's blocking calls, from the first call of this process until `close`. Safe to use from many threads.

    It opens the store once, in the thread that comes first; the others wait for that until their own deadlines.
    """

    def __init__(self, calls: BlockingCalls, follow: Follow | None, is_stale: Callable[[], bool] | None) -> None:
        self._calls = calls
        self._follow = follow
        self._is_stale = is_stale
        self._opening = Places(1)
        self._is_open = False
        self._closed = ClosedFlag()

    def time(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        self._closed.wait(seconds)

    async def driver(self, deadline: float) -> Driver:
        driver = self._calls.until(deadline)
        if not self._is_open:
            await self._open(driver, deadline)
        elif self._is_stale is not None and self._is_stale():
            await self._follow_again(driver)
        return driver

    async def within(self, budget: Budget, call: Callable[..., Awaitable[T]], *args: Any) -> T:
        return await call(*args)  # the driver ends each of its calls by the budget's deadline

    def closings(self) -> int:
        return int(self._closed.is_set())

    def is_closed(self) -> bool:
        return self._closed.is_set()

    def close(self) -> None:
        """Close the driver's connections and wake the callers that sleep. Never waits."""
        self._closed.set()
        self._calls.close()

    async def _open(self, driver: Driver, deadline: float) -> None:
        me = threading.get_ident()
        try:
            if not self._opening.enter(deadline - time.monotonic()):
                raise BackendUnavailable("another thread was still opening the store")
            if self._closed.is_set():
                raise BackendUnavailable("the client was closed while it opened the store")
            if not self._is_open:
                await driver.open()
                if self._follow is not None:
                    await self._follow(driver.server_time)
                self._is_open = True
        finally:
            self._opening.inside.discard(me)
            self._opening.wake()

    async def _follow_again(self, driver: Driver) -> None:
        assert self._follow is not None
        try:
            await self._follow(driver.server_time)
        except (BackendUnavailable, OSError):
            pass  # the call that comes next reports it, or succeeds after a retry


def run_on_this_thread(call: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
    """The result of a coroutine function whose coroutine never suspends; RuntimeError if it does.

    The coroutine is made here: an interrupt on the way would leave one that was never awaited, with a warning.
    """
    coroutine = call(*args)
    try:
        coroutine.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    except BackendUnavailable:
        stay_at_exit()
        raise
    coroutine.close()
    raise RuntimeError("a blocking driver suspended: its calls must do their I/O before they return")
