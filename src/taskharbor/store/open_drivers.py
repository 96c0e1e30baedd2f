"""The open drivers of one store, by event loop and for blocking calls.

An opened driver belongs to its loop. The driver that was given serves the first loop that asks; every other loop gets
a sibling on the same store. A driver whose loop was closed is forgotten. In a forked child everything of the parent's
is left alone, unused and unclosed: its connections are the parent's.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from typing import Any

from taskharbor.drivers.base import Driver
from taskharbor.drivers.blocking_calls import BlockingCalls
from taskharbor.drivers.dsn import redact, scheme_of
from taskharbor.drivers.registry import open_driver, resolve_dsn, warn_of_default
from taskharbor.model.clock import Clock
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.main_guard import refuse_while_main_is_imported
from taskharbor.store.access import BlockingAccess, Follow, follow_again, note_exit

OPENED = "a store was opened to enqueue or to read"

_all: weakref.WeakSet[DriverPerLoop] = weakref.WeakSet()


class _LoopDriver:
    """The driver of one loop. A task of its own opens it once: the caller that came first may give up meanwhile."""

    __slots__ = ("driver", "opened", "opening")

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.opened = False
        self.opening: asyncio.Task[None] | None = None


class DriverPerLoop:
    """The drivers of one store by event loop. Safe to use from many threads and loops."""

    def __init__(self, source: Driver | str | None, clock: Clock) -> None:
        if source is None or isinstance(source, str):
            scheme_of(resolve_dsn(source))  # a malformed DSN fails here, not with the first job
        elif not isinstance(source, Driver):
            raise TypeError(
                "expected a DSN such as sqlite:///jobs.db, or a driver (a subclass of taskharbor.drivers.Driver), "
                f"got {type(source).__name__}"
            )
        self._source = source
        self._driver: Driver | None = None if source is None or isinstance(source, str) else source
        self._follow: Follow | None = getattr(clock, "follow", None)
        self._is_stale = getattr(clock, "stale", None) if self._follow is not None else None
        self._lock = threading.Lock()
        self._by_loop: dict[asyncio.AbstractEventLoop, _LoopDriver] = {}
        self._closings: dict[asyncio.AbstractEventLoop, int] = {}
        self._is_taken = False  # whether a loop has the first driver; the others get siblings of it
        self.access: BlockingAccess | None = None  # the store's blocking calls for this process, once they were used
        self._only_awaited = False  # whether the driver has no blocking calls
        self._is_child = False  # whether the first driver is that of the process which forked this one
        self._parents: list[Any] = []  # in a forked child: what the parent has opened
        _all.add(self)

    def __repr__(self) -> str:
        if self._source is None or isinstance(self._source, str):
            try:
                return repr(redact(resolve_dsn(self._source)))
            except ValueError:  # the environment has changed since
                return "'…'"
        return f"<{type(self._source).__name__}>"  # its own repr might show how it connects

    @property
    def source(self) -> Driver | str | None:
        """The driver or DSN that the program gave; None if it leaves the store to the environment."""
        return self._source

    @property
    def dsn(self) -> str | None:
        """The DSN in use; None if a driver was given."""
        return resolve_dsn(self._source) if self._source is None or isinstance(self._source, str) else None

    @property
    def driver(self) -> Driver:
        """The driver that was given, or the one the DSN names; made at the first use, not opened here."""
        with self._lock:
            return self._first()

    # Awaited -------------------------------------------------------------------------------------------------

    async def get(self) -> Driver:
        """The open driver of the running loop."""
        loop = asyncio.get_running_loop()
        own = self._by_loop.get(loop)
        if own is None:
            own = self._take(loop)
        if not own.opened:
            await self._opened(own, loop)
        elif self._is_stale is not None and self._is_stale():
            await follow_again(self._follow, own.driver)
        return own.driver

    async def _opened(self, own: _LoopDriver, loop: asyncio.AbstractEventLoop) -> None:
        opening = own.opening
        if opening is None or opening.done():
            opening = own.opening = loop.create_task(self._open(own), name="taskharbor-open")
            opening.add_done_callback(_mark_retrieved)
        await asyncio.wait([opening])  # which leaves it alone if we are cancelled
        if opening.cancelled():
            raise BackendUnavailable("the client was closed while it opened the store")
        opening.result()

    async def _open(self, own: _LoopDriver) -> None:
        await own.driver.open()
        if self._follow is not None:
            await self._follow(own.driver.server_time)
        own.opened = True

    def closings(self) -> int:
        """How often the driver of the running loop was closed: a call that finds it closed does not open it again."""
        return self._closings.get(asyncio.get_running_loop(), 0)

    async def close(self) -> None:
        """Close the driver of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            self._closings[loop] = self._closings.get(loop, 0) + 1
            own = self._by_loop.pop(loop, None)
            if own is not None and own.driver is self._driver:
                self._is_taken = False  # closed, it may serve again
        if own is not None:
            if own.opening is not None and not own.opening.done():
                own.opening.cancel()
                await asyncio.wait([own.opening])
            await own.driver.close()

    # On the calling thread -----------------------------------------------------------------------------------

    def blocking(self) -> BlockingAccess | None:
        """The store's blocking calls for this process; None if its driver has none."""
        if self.access is not None or self._only_awaited:
            return self.access
        refuse_while_main_is_imported(OPENED)
        with self._lock:
            if self.access is None:
                first = self._first()
                calls = _blocking_calls(first.sibling() if self._is_child else first)
                self._only_awaited = calls is None
                if calls is not None:
                    self.access = BlockingAccess(calls, self._follow, self._is_stale)
            return self.access

    def close_blocking(self) -> None:
        """Close what blocking calls opened; the next one begins anew."""
        with self._lock:
            access, self.access = self.access, None
        if access is not None:
            access.close()

    # On a connection of the caller's -------------------------------------------------------------------------

    def unopened(self) -> Driver:
        """A driver for statements on a connection of the caller's: the loop's own if it has one, else the first."""
        refuse_while_main_is_imported(OPENED)
        try:
            own = self._by_loop.get(asyncio.get_running_loop())
        except RuntimeError:
            own = None
        return self.driver if own is None else own.driver

    def _take(self, loop: asyncio.AbstractEventLoop) -> _LoopDriver:
        refuse_while_main_is_imported(OPENED)
        with self._lock:
            self._by_loop = {other: own for other, own in self._by_loop.items() if not other.is_closed()}
            self._closings = {other: times for other, times in self._closings.items() if not other.is_closed()}
            first = self._first()
            own = self._by_loop[loop] = _LoopDriver(first.sibling() if self._is_taken else first)
            self._is_taken = True
            return own

    def _first(self) -> Driver:
        if self._driver is None:
            dsn = resolve_dsn(self._source if isinstance(self._source, str) else None)
            if self._source is None:
                warn_of_default(dsn)
            self._driver = open_driver(dsn)
        return self._driver

    def _forget(self) -> None:
        self._lock = threading.Lock()  # a thread that holds the parent's does not exist here
        self._parents += (self._by_loop, self.access)  # kept, so that no finalizer writes to the parent's sockets
        self._by_loop, self._closings, self.access = {}, {}, None
        self._is_taken = self._is_child = self._driver is not None


def _blocking_calls(driver: Driver) -> BlockingCalls | None:
    """The blocking calls of a driver whose own class defines them: see `Driver.blocking`."""
    make = vars(type(driver)).get("blocking")
    return None if make is None else make(driver)


def _mark_retrieved(opening: asyncio.Task[None]) -> None:
    if not opening.cancelled():
        opening.exception()  # every caller that waited has raised it; the next call tries again


def _close_at_exit() -> None:
    note_exit()
    for drivers in list(_all):
        drivers.close_blocking()


def _forget_all() -> None:
    for drivers in list(_all):
        drivers._forget()


atexit.register(_close_at_exit)
os.register_at_fork(after_in_child=_forget_all)
