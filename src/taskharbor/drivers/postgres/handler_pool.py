"""The connections of `ctx.transaction()`: at most `pool_size` at once, kept for the next transaction for a while.

A transaction takes a place, and waits for one as long as its job may run. The first ones that wait are the first to get
one, coroutines and plain functions alike. What is kept is libpq's connection: each handler gets an object of psycopg's
of its own around it, so that a handler that goes on with an old one reaches nothing.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING

from taskharbor.drivers.postgres.pool import IDLE_S

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

Place = Future[None]  # done when its owner may go on; see `HandlerPool.leave`


class HandlerPool:
    """The places and connections of one driver, for threads and event loops."""

    def __init__(self, size: int) -> None:
        self._lock = threading.Lock()
        self._free = size
        self._waiting: deque[Place] = deque()
        self._idle: list[tuple[float, PGconn]] = []  # since when, the newest last
        self._closed = False

    def enter(self) -> Place:
        """A place: now, or when another transaction has ended."""
        place: Place = Future()
        with self._lock:
            if self._free:
                self._free -= 1
                place.set_result(None)
            else:
                self._waiting.append(place)
        return place

    def leave(self, place: Place) -> None:
        """Hand a place on; one that was still waited for is given up."""
        if place.cancel():
            return
        with self._lock:
            while self._waiting:
                following = self._waiting.popleft()
                if following.set_running_or_notify_cancel():
                    following.set_result(None)
                    return
            self._free += 1

    def take(self) -> PGconn | None:
        """A connection that was kept."""
        with self._lock:
            return self._idle.pop()[1] if self._idle else None

    def keep(self, connection: PGconn) -> None:
        """Keep a connection whose session is as it was at its start."""
        with self._lock:
            if not self._closed:
                return self._idle.append((time.monotonic(), connection))
        return connection.finish()

    def trim(self) -> None:
        """Close what was not used for a while."""
        limit = time.monotonic() - IDLE_S
        with self._lock:
            old, self._idle = (
                [each for each in self._idle if each[0] <= limit],
                [each for each in self._idle if each[0] > limit],
            )
        for _, connection in old:
            connection.finish()

    def close(self) -> None:
        """Close what is kept; what is in use is closed when its job ends."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.finish()
