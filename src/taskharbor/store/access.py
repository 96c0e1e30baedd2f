"""One call to a store: the ways to reach it, how long the call takes, and what is repeated.

A `StoreCall` is written once, as coroutines over a `StoreAccess`. An event loop runs them over `AwaitedAccess`. Over
`BlockingAccess` none of them ever suspends, so `run_on_this_thread` runs them with a single step: no loop, no other
thread.

A call that the store refuses is repeated, five times in all, with growing, jittered pauses. For a store that does not
respond it waits until the time of the call is over. Either way the error says what was tried, for how long, and what
is unknown now.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from taskharbor.drivers.base import Driver
from taskharbor.drivers.blocking_calls import BlockingCalls
from taskharbor.drivers.signal_safe import ClosedFlag, ThreadLimit
from taskharbor.model.errors import BackendUnavailable, BlockingCall

if TYPE_CHECKING:
    from taskharbor.store.open_drivers import DriverPerLoop
    from taskharbor.store.session import Store

T = TypeVar("T")

Act: TypeAlias = Callable[[Driver], Awaitable[T]]
"""What a call does with an open driver. It may be called several times: see `StoreCall.ask`."""
Follow = Callable[[Callable[[], Awaitable[datetime]]], Awaitable[Any]]

RESOLUTION_S = 0.001  # of every clock here: what is left after rounding is not worth waiting for
MAX_TRIES = 5
FIRST_PAUSE_S = 0.05  # doubled each time, plus up to as much again: 0.75 to 1.5 seconds in all
MAX_PAUSE_S = 1.0  # while the store is busy

NO_LOOP = (
    "awaited calls need a running event loop of asyncio, and this thread has none: under trio and other loops call the "
    "blocking twin in a thread, for example: await trio.to_thread.run_sync(task.enqueue, …)"
)

_exiting = False  # whether the interpreter exits: then only the main thread and daemons are left


class StoreCall:
    """One call to a store, by the clock of its `access`. `what` names it; `doubt` says what is unknown if it fails
    after the store was reached."""

    __slots__ = (
        "_began", "access", "deadline", "doubt", "in_handler", "last", "method", "now", "reached", "store", "tries",
        "what",
    )  # fmt: skip

    def __init__(
        self, store: Store, access: StoreAccess, seconds: float, what: str, method: str = "", in_handler: bool = False
    ) -> None:
        self.store = store
        self.now = store.clock.now  # the present, by the clock of the store
        self.access = access
        self._began = access.time()
        self.deadline = self._began + seconds
        self.what = what
        self.doubt: Callable[[], str] | None = None
        self.method = method or what  # as the caller wrote it: "aresult"
        self.in_handler = in_handler  # whether a handler of a worker made a call that may wait for jobs
        self.tries = 0
        self.reached = False  # whether the store was open, so that something may have been sent to it
        self.last: BackendUnavailable | None = None  # the error of the last try that failed in time

    def again(self, what: str = "") -> StoreCall:
        """Another call of the same caller, with as much time: for each read of one that polls."""
        return StoreCall(self.store, self.access, self.deadline - self._began, what or self.what)

    async def ask(self, send: Act[T]) -> T:
        """What `send` returns. It may be called several times: until it succeeds, fails five times for another reason
        than that the store is busy, or its time is over."""
        limit = self.access.limit(self.deadline)
        if limit is None:
            return await self._tries(send)
        try:
            async with limit:
                return await self._tries(send)
        except TimeoutError:
            if not limit.expired():
                raise
        raise self.spent() from self.cause()

    async def change(self, send: Act[T], doubt: str) -> T:
        """The same for a change. `doubt`: what is unknown if no reply comes, and what to do then."""
        self.doubt = lambda: doubt
        return await self.ask(send)

    async def _tries(self, send: Act[T]) -> T:
        access = self.access
        closings = access.closings()
        pause = FIRST_PAUSE_S
        for number in itertools.count(1):
            self.tries += 1
            try:
                driver = await access.driver(self.deadline)
                self.reached = True
                return await send(driver)
            except BackendUnavailable as error:
                if self.is_over():
                    raise self.spent() from self.cause(error)
                self.last = error
                if (number >= MAX_TRIES and not error.passing) or access.closings() != closings:
                    raise self.refused(error) from self.cause(error)
            await access.sleep(min(pause + pause * random.random(), self.left()))
            if access.closings() != closings:
                raise self.refused(self.last) from self.cause()
            if self.is_over():
                break
            pause = min(2 * pause, MAX_PAUSE_S)
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


class StoreAccess(Protocol):
    """One way to reach the store."""

    def time(self) -> float:
        """Seconds of the clock that deadlines are given in."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`, or sooner when this way is closed."""

    async def driver(self, deadline: float) -> Driver:
        """The open driver. The first call opens it; a call now and then follows the store's clock."""

    def limit(self, deadline: float) -> asyncio.Timeout | None:
        """What ends the awaiting of a call at its deadline; None if the driver ends each of its calls by then."""

    def closings(self) -> int:
        """How often this way was closed: a call under way that sees it change does not open the store again."""

    def is_closed(self) -> bool:
        """Whether this way is closed for good: then waiting for a result ends."""


class AwaitedAccess:
    """The driver of the running event loop."""

    def __init__(self, drivers: DriverPerLoop) -> None:
        self._drivers = drivers

    def time(self) -> float:
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            raise RuntimeError(NO_LOOP) from None

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def driver(self, deadline: float) -> Driver:
        return await self._drivers.get()

    def limit(self, deadline: float) -> asyncio.Timeout | None:
        return asyncio.timeout_at(deadline)

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
        self._opening = ThreadLimit(1)
        self._is_open = False
        self._closed = ClosedFlag()
        self._closings = 0

    time = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        self._closed.wait(seconds)

    async def driver(self, deadline: float) -> Driver:
        driver = self._calls.until(deadline)
        if not self._is_open:
            await self._open(driver, deadline)
        elif self._is_stale is not None and self._is_stale():
            await follow_again(self._follow, driver)
        return driver

    def limit(self, deadline: float) -> asyncio.Timeout | None:
        return None

    def closings(self) -> int:
        return self._closings

    def is_closed(self) -> bool:
        return self._closings > 0

    def close(self) -> None:
        """Close the driver's connections and wake the callers that sleep. Never waits."""
        self._closings = 1
        self._closed.set()
        self._calls.close()

    async def _open(self, driver: Driver, deadline: float) -> None:
        me = threading.get_ident()
        try:
            if not self._opening.enter(deadline - time.monotonic()):
                raise BackendUnavailable("another thread was still opening the store")
            if self._closings:
                raise BackendUnavailable("the client was closed while it opened the store")
            if not self._is_open:
                await driver.open()
                if self._follow is not None:
                    await self._follow(driver.server_time)
                self._is_open = True
        finally:
            self._opening.inside.discard(me)
            self._opening.wake()


def refuse_on_loop(method: str, instead: str = "") -> None:
    """BlockingCall if this thread runs an event loop: blocking it would freeze everything on it. `instead`: what to use
    there, if it is not the awaitable twin."""
    if asyncio._get_running_loop() is None:
        return
    owner, _, name = method.rpartition(".")
    instead = instead or f"await {owner}.a{name}(...)"
    raise BlockingCall(f"{method}() would block the running event loop; use: {instead}")


def run_on_this_thread(call: Callable[..., Coroutine[Any, Any, T]], *args: Any, **named: Any) -> T:
    """The result of a coroutine function whose coroutine never suspends; RuntimeError if it does.

    The coroutine is made here: an interrupt on the way would leave one that was never awaited, with a warning.
    """
    coroutine = call(*args, **named)
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


async def follow_again(follow: Follow | None, driver: Driver) -> None:
    assert follow is not None
    try:
        await follow(driver.server_time)
    except (BackendUnavailable, OSError):
        pass  # the call that comes next reports it, or succeeds after a retry


def stay_at_exit() -> None:
    """While the interpreter exits, wait for ever in a daemon thread instead of raising. There the error would only be
    printed, and Python may abort when a daemon prints during the exit."""
    if _exiting and threading.current_thread() is not threading.main_thread():
        threading.Event().wait()


def note_exit() -> None:
    """From now on the interpreter exits: see `stay_at_exit`."""
    global _exiting
    _exiting = True
