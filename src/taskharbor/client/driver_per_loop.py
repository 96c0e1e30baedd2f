"""One open driver for each event loop that uses a store.

An opened driver belongs to its loop. The driver that was given serves the first loop that asks; every other loop gets
a sibling on the same store. What belongs to a loop that is closed is forgotten. In a forked child everything of the
parent's is left alone, unused and unclosed: its connections are the parent's.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from typing import Any

from taskharbor.drivers.contract import Driver
from taskharbor.drivers.dsn import redact, scheme_of
from taskharbor.drivers.registry import open_driver, resolve_dsn, tell_default
from taskharbor.model.clock import Clock
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.main_guard import refuse_while_main_is_imported

OPENED = "a store was opened to enqueue or look"

_all: weakref.WeakSet[LoopDrivers] = weakref.WeakSet()


class _Held:
    """A driver of one loop. It is opened once, by a task of its own: whoever came first may give up meanwhile."""

    __slots__ = ("driver", "opened", "opening")

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.opened = False
        self.opening: asyncio.Task[None] | None = None


class LoopDrivers:
    """The drivers of one store by event loop. Safe to use from many threads and loops."""

    def __init__(self, source: Driver | str | None, clock: Clock) -> None:
        if source is None or isinstance(source, str):
            scheme_of(resolve_dsn(source))  # what is no DSN fails here, not with the first job
        elif not all(hasattr(source, verb) for verb in ("open", "sibling", "enqueue")):
            # isinstance(source, Driver) would refuse drivers that delegate with __getattr__ (Python 3.12 and later)
            raise TypeError(f"expected a driver or a DSN such as sqlite:///jobs.db, got {type(source).__name__}")
        self._source = source
        self._driver: Driver | None = None if source is None or isinstance(source, str) else source
        self._follow = getattr(clock, "follow", None)
        self._stale = getattr(clock, "stale", None) if self._follow is not None else None
        self._lock = threading.Lock()
        self._held: dict[asyncio.AbstractEventLoop, _Held] = {}
        self._closings: dict[asyncio.AbstractEventLoop, int] = {}
        self._given = False  # whether a loop has the first driver
        self._parents: list[Any] = []
        _all.add(self)

    def __repr__(self) -> str:
        if self._source is None or isinstance(self._source, str):
            try:
                return repr(redact(resolve_dsn(self._source)))
            except ValueError:  # the environment has changed since
                return "'…'"
        return f"<{type(self._source).__name__}>"  # its own repr might show how it connects

    @property
    def dsn(self) -> str | None:
        """The DSN in use; None if a driver was given."""
        return resolve_dsn(self._source) if self._source is None or isinstance(self._source, str) else None

    @property
    def driver(self) -> Driver:
        """The driver that was given, or the one the DSN names; made at the first use, not opened here."""
        with self._lock:
            return self._first()

    async def get(self) -> Driver:
        """The open driver of the running loop."""
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is None:
            held = self._take(loop)
        if not held.opened:
            await self._opened(held, loop)
        elif self._stale is not None and self._stale():
            await self._look_again(held.driver)
        return held.driver

    async def _opened(self, held: _Held, loop: asyncio.AbstractEventLoop) -> None:
        opening = held.opening
        if opening is None or opening.done():
            opening = held.opening = loop.create_task(self._open(held), name="taskharbor-open")
            opening.add_done_callback(_heard)
        await asyncio.wait([opening])  # which leaves it alone if we are cancelled
        if opening.cancelled():
            raise BackendUnavailable("the client was closed while it opened the store")
        opening.result()

    async def _open(self, held: _Held) -> None:
        await held.driver.open()
        if self._follow is not None:
            await self._follow(held.driver.server_time)
        held.opened = True

    async def _look_again(self, driver: Driver) -> None:
        assert self._follow is not None
        try:
            await self._follow(driver.server_time)
        except (BackendUnavailable, OSError):
            pass  # the call that this was to serve will say so, or succeed by its repetition

    def unopened(self) -> Driver:
        """A driver for statements on a connection of the caller's: the loop's own if it has one, else the first."""
        refuse_while_main_is_imported(OPENED)
        try:
            held = self._held.get(asyncio.get_running_loop())
        except RuntimeError:
            held = None
        return self.driver if held is None else held.driver

    def closings(self) -> int:
        """How often the driver of the running loop was closed: a call that finds it closed does not open it again."""
        return self._closings.get(asyncio.get_running_loop(), 0)

    async def close(self) -> None:
        """Close the driver of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            self._closings[loop] = self._closings.get(loop, 0) + 1
            held = self._held.pop(loop, None)
            if held is not None and held.driver is self._driver:
                self._given = False  # closed, it may serve again
        if held is not None:
            if held.opening is not None and not held.opening.done():
                held.opening.cancel()
                await asyncio.wait([held.opening])
            await held.driver.close()

    def _take(self, loop: asyncio.AbstractEventLoop) -> _Held:
        refuse_while_main_is_imported(OPENED)
        with self._lock:
            self._held = {other: held for other, held in self._held.items() if not other.is_closed()}
            self._closings = {other: times for other, times in self._closings.items() if not other.is_closed()}
            first = self._first()
            held = self._held[loop] = _Held(first.sibling() if self._given else first)
            self._given = True
            return held

    def _first(self) -> Driver:
        if self._driver is None:
            dsn = resolve_dsn(self._source if isinstance(self._source, str) else None)
            if self._source is None:
                tell_default(dsn)
            self._driver = open_driver(dsn)
        return self._driver

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._parents.append(self._held)  # kept, so that no finalizer says goodbye on the parent's connections
        self._held, self._closings = {}, {}
        self._given = self._driver is not None


def _heard(opening: asyncio.Task[None]) -> None:
    if not opening.cancelled():
        opening.exception()  # whoever waited for it was told; the next call tries again


def _forget_all() -> None:
    for drivers in list(_all):
        drivers._forget()


os.register_at_fork(after_in_child=_forget_all)
