"""Blocking calls: the driver's own code and scripts, over sockets that the calling thread reads itself.

The coroutines of the driver never suspend here, because every wait lies in `_Connections.call`, and that blocks. One
server, a Unix socket, TLS and Sentinel can be called so. On a Cluster one call asks several nodes at once and waits for
some only for a moment, which needs an event loop: there the client uses its portal.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from redis.exceptions import AuthenticationError, ResponseError

from taskharbor.drivers.redis.blocking_connection import BlockingPool
from taskharbor.drivers.redis.driver import RedisDriver
from taskharbor.drivers.redis.endpoint import AWAY, LOST, Endpoint, monotonic
from taskharbor.drivers.redis.reading import JobReader, ReaderCache
from taskharbor.drivers.redis.resp import Address, Command
from taskharbor.drivers.redis.sentinel import (
    CHECK_EVERY_S,
    CHECK_TIMEOUT_S,
    SentinelAnswer,
    SentinelEndpoint,
    chosen_primary,
    login_refused,
    read_answer,
    sentinel_questions,
)
from taskharbor.drivers.redis.store import RedisStore
from taskharbor.drivers.signal_safe import Places
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
            endpoint = BlockingEndpoint(self._options, self._dsn, _Connections(self._shared, deadline))
        else:
            endpoint = BlockingSentinelEndpoint(self._options, self._dsn, self._shared, deadline)
        return _DriverUntil(self._options, self._dsn, RedisStore(endpoint, self._skipped), self._cache)

    def close(self) -> None:
        self._is_closed = True
        self._shared.close()


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


class _Connections:
    """A pool until a deadline, as an endpoint uses it."""

    __slots__ = ("_deadline", "pool")

    def __init__(self, pool: BlockingPool, deadline: float) -> None:
        self.pool = pool
        self._deadline = deadline

    @property
    def name(self) -> str:
        return self.pool.name

    @property
    def address(self) -> Address:
        return self.pool.address

    async def call(self, *commands: Command, within: float | None = None) -> list[Any]:
        return self.pool.call(commands, within, self._deadline)

    async def ask(self, *command: Any) -> Any:
        (reply,) = self.pool.call([command], None, self._deadline)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def drop_idle(self) -> None:
        self.pool.drop_idle()


async def _one_by_one(calls: Sequence[Awaitable[T]]) -> list[T]:
    return [await call for call in calls]


def _seconds_until(deadline: float) -> float:
    return min(max(deadline - monotonic(), 0), threading.TIMEOUT_MAX)


class BlockingEndpoint(Endpoint):
    """One server."""

    def __init__(self, options: RedisOptions, dsn: str, connections: _Connections) -> None:
        self.options = options
        self._dsn = dsn
        self._pool: Any = connections

    async def gather(self, calls: Sequence[Awaitable[T]]) -> list[T]:
        return await _one_by_one(calls)


class BlockingPrimary:
    """The primary that the sentinels name, for all threads of a process."""

    def __init__(self, options: RedisOptions) -> None:
        self._options = options
        self._sentinels = [BlockingPool(options.for_sentinels(), address) for address in options.hosts]
        self._asking = Places(1)  # one thread asks at a time
        self._pool: BlockingPool | None = None
        self._check_at = 0.0

    def pool(self, deadline: float) -> BlockingPool:
        """The primary's connections. The sentinels are asked if they have not been for a second."""
        pool = self._pool
        if pool is not None and monotonic() < self._check_at:
            return pool
        me = threading.get_ident()
        try:
            if not self._asking.enter(_seconds_until(deadline) if pool is None else 0):
                if pool is not None:
                    return pool
                raise TimeoutError("another thread was still asking the sentinels")
            if self._pool is not None and monotonic() >= self._check_at:
                self._check(self._pool, deadline)
            pool = self._pool
            if pool is None:
                pool = self._pool = BlockingPool(self._options, self._ask(deadline), primary=True)
            self._check_at = monotonic() + CHECK_EVERY_S
            return pool
        finally:
            self._asking.inside.discard(me)
            self._asking.wake()

    def _check(self, pool: BlockingPool, deadline: float) -> None:
        try:
            if self._ask(min(deadline, monotonic() + CHECK_TIMEOUT_S)) != pool.address:
                self.left(pool)
        except (*LOST, *AWAY, ResponseError):
            pass  # no sentinel answers: the primary is as good as before

    def left(self, pool: BlockingPool) -> None:
        """Ask again who is the primary before the next call."""
        if self._pool is pool:
            self._pool = None
        pool.close()

    def _ask(self, deadline: float) -> Address:
        """Ask one sentinel after the other, until more than half have answered.

        At first each has a moment only: one that hangs must not hold up those that answer at once. It is asked last
        from then on. One thread at a time asks.
        """
        answers: list[SentinelAnswer | None] = []
        failed: list[BaseException] = []
        silent = list(self._sentinels)
        for limit in (CHECK_TIMEOUT_S, threading.TIMEOUT_MAX):
            for place, sentinel in enumerate(list(silent)):
                now = monotonic()
                share = (deadline - now) / (len(self._sentinels) - place)
                try:
                    answers.append(self._answer(sentinel, now + min(share, limit)))
                    silent.remove(sentinel)
                except (*LOST, *AWAY, ResponseError) as error:
                    sentinel.drop_idle()
                    failed.append(error)
                if 2 * len(answers) > len(self._sentinels):
                    self._sentinels.sort(key=silent.__contains__)
                    return chosen_primary(answers, failed, self._options)
        return chosen_primary(answers, failed, self._options)

    def _answer(self, sentinel: BlockingPool, deadline: float) -> SentinelAnswer | None:
        try:
            where, facts = sentinel.call(sentinel_questions(self._options), None, deadline)
        except AuthenticationError as error:
            raise login_refused() from error
        return read_answer(where, facts, sentinel.name)

    def close(self) -> None:
        for pool in (*self._sentinels, self._pool):
            if pool is not None:
                pool.close()


class BlockingSentinelEndpoint(SentinelEndpoint):
    """Whichever server is the primary of a service."""

    def __init__(self, options: RedisOptions, dsn: str, primary: BlockingPrimary, deadline: float) -> None:
        self.options = options
        self._dsn = dsn
        self._shared = primary
        self._deadline = deadline

    async def _found(self) -> Any:
        return _Connections(self._shared.pool(self._deadline), self._deadline)

    async def _current(self) -> Any:
        return await self._found()

    async def _left(self, pool: Any) -> None:
        self._shared.left(pool.pool)

    async def _sleep(self, seconds: float) -> None:
        time.sleep(  # noqa: ASYNC251 - this coroutine runs without an event loop
            min(seconds, _seconds_until(self._deadline))
        )

    async def gather(self, calls: Sequence[Awaitable[T]]) -> list[T]:
        return await _one_by_one(calls)
