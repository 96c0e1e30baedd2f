"""Blocking calls: the driver's own code and scripts, over sockets that the calling thread reads itself.

The coroutines of the driver never suspend here, because every wait blocks the thread: for a connection, for a reply,
for a new primary. Any number of threads may call; at most `pool_size` of them are connected at a time, and the others
wait until their deadline.

One server, a Unix socket, TLS and Sentinel can be called so. On a Cluster one call asks several nodes at once and waits
for some only for a moment, which needs an event loop: there the client uses its portal.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from redis.exceptions import ResponseError

from taskharbor.drivers.redis.blocking_connection import BlockingConnection, dial_blocking
from taskharbor.drivers.redis.driver import RedisDriver
from taskharbor.drivers.redis.endpoint import AWAY, LOST, Endpoint
from taskharbor.drivers.redis.pool import RedisPool
from taskharbor.drivers.redis.reading import JobReader, ReaderCache
from taskharbor.drivers.redis.resp import Address, monotonic
from taskharbor.drivers.redis.sentinel import (
    CHECK_EVERY_S,
    CHECK_TIMEOUT_S,
    Primary,
    SentinelAnswer,
    SentinelEndpoint,
    chosen_primary,
)
from taskharbor.drivers.redis.store import RedisStore
from taskharbor.drivers.signal_safe import ThreadLimit
from taskharbor.model.errors import BackendUnavailable

if TYPE_CHECKING:
    from taskharbor.drivers.redis.options import RedisOptions

T = TypeVar("T")


class RedisBlocking:
    """The blocking calls of one process."""

    def __init__(self, options: RedisOptions, dsn: str) -> None:
        self._options = options
        self._dsn = dsn
        self._skipped: dict[str, int] = {}
        self._cache = ReaderCache()
        self._shared: BlockingPool | BlockingPrimary = (
            BlockingPool(options, options.hosts[0]) if options.service is None else BlockingPrimary(options)
        )
        self._is_closed = False

    def until(self, deadline: float) -> RedisDriver:
        """The driver for one call, which ends by `deadline`."""
        if self._is_closed:
            raise BackendUnavailable("the store's blocking calls were closed")
        endpoint: Endpoint
        if isinstance(self._shared, BlockingPool):
            endpoint = BlockingEndpoint(self._options, self._dsn, self._shared, deadline)
        else:
            endpoint = BlockingSentinelEndpoint(self._options, self._dsn, self._shared, deadline)
        return _DriverUntil(self._options, self._dsn, RedisStore(endpoint, self._skipped), self._cache)

    def close(self) -> None:
        self._is_closed = True
        with contextlib.suppress(StopIteration):
            self._shared.close().send(None)  # it never suspends


class _OneCall:
    """What an opened driver has, as far as one call of a client needs it."""

    __slots__ = ("_cache", "store")

    def __init__(self, store: RedisStore, cache: ReaderCache) -> None:
        self.store = store
        self._cache = cache

    @property
    def reader(self) -> JobReader:
        return JobReader(self.store, self._cache)


class _DriverUntil(RedisDriver):
    """The driver for one call."""

    def __init__(self, options: RedisOptions, dsn: str, store: RedisStore, cache: ReaderCache) -> None:
        self.options = options
        self._dsn = dsn
        self._opened: Any = _OneCall(store, cache)

    async def open(self) -> None:
        await self.store.endpoint.open()

    async def close(self) -> None:
        """Nothing of its own: the pool is closed with the blocking calls."""


def _seconds_until(deadline: float) -> float:
    return min(max(deadline - monotonic(), 0), threading.TIMEOUT_MAX)


class BlockingPool(RedisPool):
    """The connections of the threads of a process to one server."""

    def _make_places(self, limit: int) -> ThreadLimit:
        return ThreadLimit(limit)

    def _caller(self) -> int:
        return threading.get_ident()

    async def _enter(self, me: object, seconds: float) -> bool:
        return bool(self._places.enter(seconds))

    async def _until_freed(self, me: object, seconds: float) -> None:
        self._places.sleep(seconds, lambda: bool(self._idle))

    async def _dial(self, seconds: float) -> BlockingConnection:
        return await dial_blocking(self._options, self.address, seconds)


class BlockingPrimary(Primary):
    """Which server is the primary, for all threads of a process. One thread at a time asks the sentinels."""

    def __init__(self, options: RedisOptions) -> None:
        super().__init__(options, BlockingPool)
        self._asking = ThreadLimit(1)

    async def found(self, deadline: float) -> RedisPool:
        return await self.current(deadline)

    async def current(self, deadline: float) -> RedisPool:
        pool = self.pool
        if pool is not None and monotonic() < self.check_at:
            return pool
        me = threading.get_ident()
        try:
            if not self._asking.enter(_seconds_until(deadline) if pool is None else 0):
                if pool is not None:
                    return pool
                raise TimeoutError("another thread was still asking the sentinels")
            if self.pool is not None and monotonic() >= self.check_at:
                await self._check(self.pool, min(deadline, monotonic() + CHECK_TIMEOUT_S))
                self.check_at = monotonic() + CHECK_EVERY_S
            return self.pool or await self._find(deadline)
        finally:
            self._asking.inside.discard(me)
            self._asking.wake()

    async def address(self, deadline: float) -> Address:
        """Ask one sentinel after the other, until more than half have answered.

        At first each has a moment only: one that hangs must not hold up those that answer at once. It is asked last
        from then on.
        """
        answers: list[SentinelAnswer | None] = []
        failed: list[BaseException] = []
        silent = list(self._sentinels)
        for limit in (CHECK_TIMEOUT_S, threading.TIMEOUT_MAX):
            for place, sentinel in enumerate(list(silent)):
                now = monotonic()
                share = (deadline - now) / (len(self._sentinels) - place)
                try:
                    answers.append(await self._answer(sentinel, now + min(share, limit)))
                    silent.remove(sentinel)
                except (*LOST, *AWAY, ResponseError) as error:
                    failed.append(error)
                if 2 * len(answers) > len(self._sentinels):
                    self._sentinels.sort(key=silent.__contains__)
                    return chosen_primary(answers, failed, self._options)
        return chosen_primary(answers, failed, self._options)


class _OnThisThread(Endpoint):
    """An endpoint whose waits block the calling thread."""

    async def gather(self, calls: Sequence[Awaitable[T]]) -> list[T]:
        return [await call for call in calls]

    async def _sleep(self, seconds: float) -> None:
        time.sleep(  # noqa: ASYNC251 - this coroutine runs without an event loop
            min(seconds, _seconds_until(self.deadline))
        )


class BlockingEndpoint(_OnThisThread):
    """One server."""


class BlockingSentinelEndpoint(_OnThisThread, SentinelEndpoint):
    """Whichever server is the primary of a service."""
