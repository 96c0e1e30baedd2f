"""Commands and scripts go to the primary that Sentinel names, and follow it when another takes its place.

The driver asks all sentinels of the DSN at once. When more than half of them have answered, the answer with the latest
configuration counts: a sentinel that was cut off from the others may still name a primary that was replaced. The server
that is named must report that it is a primary, on every connection. When it does not answer, or is a replica, the
sentinels are asked again; a call waits for a new primary as long as its timeout allows. They are also asked while all
is well, by a call that finds the last answer a second old: a replaced primary goes on accepting jobs, which are lost,
until a sentinel reconfigures it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

from redis.exceptions import AuthenticationError, ConnectionError, NoScriptError, ResponseError

from taskharbor.drivers.redis.connection import RespConnection, dial
from taskharbor.drivers.redis.endpoint import AWAY, LOST, Endpoint, MakeCommands, checked, refused
from taskharbor.drivers.redis.options import RedisOptions
from taskharbor.drivers.redis.pool import RedisPool
from taskharbor.drivers.redis.resp import Address, monotonic
from taskharbor.model.errors import BackendUnavailable

PAUSE_S = 0.1  # between two attempts to find a primary
CHECK_EVERY_S = 1.0  # for which an answer of the sentinels is good
CHECK_TIMEOUT_S = 0.1  # for which a call waits for a new answer: sentinels that are away must not hold up the jobs
SentinelAnswer = tuple[int, Address]  # the epoch of a sentinel's configuration, and the primary in it


class Misdirected(ConnectionError):
    """The server is not a Sentinel, or does not watch the service: waiting does not help."""


def login_refused() -> Misdirected:
    return Misdirected("a sentinel refused the login: give its own, with sentinel_username and sentinel_password")


def read_answer(where: Any, facts: Any, sentinel: str) -> SentinelAnswer | None:
    """A sentinel's answer to the questions about the service; None if it does not know the service."""
    if isinstance(where, AuthenticationError):
        raise login_refused() from where
    if isinstance(where, ResponseError) and "unknown command" in str(where).lower():
        raise Misdirected(
            f"{sentinel} is not a Sentinel: expected the addresses of sentinels, whose port is usually 26379; "
            "for one server write redis://"
        )
    if isinstance(where, Exception):
        raise where
    if where is None:
        return None
    named = dict(zip(facts[::2], facts[1::2], strict=False)) if isinstance(facts, list) else {}
    return int(named.get(b"config-epoch", 0)), (where[0].decode(), int(where[1]))


def chosen_primary(
    answers: Sequence[SentinelAnswer | None], failed: Sequence[BaseException], options: RedisOptions
) -> Address:
    """The primary of the latest configuration; else the error that says most."""
    known = [answer for answer in answers if answer is not None]
    if known:
        return max(known)[1]
    if answers:
        raise Misdirected(f"the sentinels watch no service {options.service!r}; is it spelled as in their files?")
    raise next((error for error in failed if isinstance(error, Misdirected)), failed[0])


class Primary:
    """Which server is the primary of a service, for the calls of one event loop. `BlockingPrimary` (blocking.py) is the
    other kind."""

    def __init__(self, options: RedisOptions, pool_of: type[RedisPool] = RedisPool) -> None:
        self._options = options
        self._pool_of = pool_of
        self._sentinels = [pool_of(options.for_sentinels(), address) for address in options.hosts]
        self.pool: RedisPool | None = None  # its connections, if it is known
        self.check_at = 0.0
        self._finding = asyncio.Lock()
        self._checking: asyncio.Task[None] | None = None

    async def close(self) -> None:
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)
        for pool in (*self._sentinels, self.pool):
            if pool is not None:
                await pool.close()

    async def found(self, deadline: float) -> RedisPool:
        """The primary as it was named last."""
        async with self._finding:
            return self.pool or await self._find(deadline)

    async def _find(self, deadline: float) -> RedisPool:
        self.pool = found = self._pool_of(self._options, await self.address(deadline), primary=True)
        self.check_at = monotonic() + CHECK_EVERY_S
        return found

    async def current(self, deadline: float) -> RedisPool:
        """The primary, by an answer of the sentinels that is not old, if they answer at once."""
        pool, now = await self.found(deadline), monotonic()
        if now < self.check_at or (self._checking is not None and not self._checking.done()):
            return pool
        self.check_at = now + CHECK_EVERY_S
        self._checking = asyncio.create_task(self._check(pool, math.inf), name="taskharbor-sentinel")
        await asyncio.wait([self._checking], timeout=CHECK_TIMEOUT_S)
        return await self.found(deadline)

    async def _check(self, pool: RedisPool, deadline: float) -> None:
        try:
            if await self.address(deadline) != pool.address:
                await self.left(pool)
        except (*LOST, *AWAY, ResponseError):
            pass  # no sentinel answers: the primary is as good as before

    async def left(self, pool: RedisPool) -> None:
        """Ask again who is the primary before the next call."""
        if self.pool is pool:
            self.pool = None
        await pool.close()

    async def address(self, deadline: float) -> Address:
        """Ask all sentinels at once, until more than half have answered."""
        asked = [asyncio.create_task(self._answer(pool, deadline)) for pool in self._sentinels]
        answers: list[SentinelAnswer | None] = []
        failed: list[BaseException] = []
        try:
            for each in asyncio.as_completed(asked):
                try:
                    answers.append(await each)
                except (*LOST, *AWAY, ResponseError) as error:
                    failed.append(error)
                if 2 * len(answers) > len(asked):
                    break
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        return chosen_primary(answers, failed, self._options)

    async def _answer(self, sentinel: RedisPool, deadline: float) -> SentinelAnswer | None:
        """A sentinel's answer; None if it does not know the service."""
        service = self._options.service
        questions = (("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service), ("SENTINEL", "MASTER", service))
        try:
            where, facts = await sentinel.call(*questions, deadline=deadline)
        except AuthenticationError as error:
            raise login_refused() from error
        except LOST:
            await sentinel.drop_idle()
            raise
        return read_answer(where, facts, sentinel.name)


class SentinelEndpoint(Endpoint):
    """Calls to whichever server is the primary of a service."""

    def __init__(
        self, options: RedisOptions, dsn: str, primary: Primary | None = None, deadline: float = math.inf
    ) -> None:
        self.options = options
        self._dsn = dsn
        self.primary = Primary(options) if primary is None else primary
        self.deadline = deadline

    async def open(self) -> None:
        await self.ask("PING")
        try:
            await self._check(await self.primary.found(self.deadline))
        except LOST as error:
            raise self.unavailable(error) from error

    async def close(self) -> None:
        await self.primary.close()

    async def addresses(self) -> list[Address]:
        return [(await self.primary.found(self.deadline)).address]

    async def _send(self, key: str, commands: MakeCommands, *, repeat: bool, within: float | None = None) -> list[Any]:
        end = monotonic() + self.options.timeout
        tries = 0
        while True:
            pool = None
            try:
                pool = await self.primary.current(self.deadline)
                return checked(await pool.call(*commands(tries > 0), within=within, deadline=self.deadline))
            except NoScriptError:
                raise
            except (*LOST, *AWAY) as error:
                tries += 1
                if pool is not None:
                    await self.primary.left(pool)
                is_in_doubt = pool is not None and isinstance(error, LOST)
                is_lasting = isinstance(error, Misdirected | AuthenticationError)
                if is_lasting or (is_in_doubt and not repeat) or (tries > 1 and monotonic() > end):
                    raise self.unavailable(error) from error
                await self._sleep(PAUSE_S)
            except ResponseError as error:
                raise refused(self, error) from error

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def connection(self) -> RespConnection:
        pool = await self.primary.found(self.deadline)
        try:
            return await dial(self.options, pool.address)
        except BaseException:
            await self.primary.left(pool)
            raise

    def unavailable(self, error: BaseException) -> BackendUnavailable:
        made = super().unavailable(error)
        made.lasting = made.lasting or isinstance(error, Misdirected)
        return made
