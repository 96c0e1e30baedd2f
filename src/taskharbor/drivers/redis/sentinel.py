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
from collections.abc import Sequence
from typing import Any

from redis.exceptions import AuthenticationError, ConnectionError, NoScriptError, ReadOnlyError, ResponseError

from taskharbor.drivers.redis.connection import RespConnection, dial
from taskharbor.drivers.redis.endpoint import AWAY, LOST, Endpoint, MakeCommands, checked, monotonic, refused
from taskharbor.drivers.redis.options import RedisOptions
from taskharbor.drivers.redis.pool import RedisPool
from taskharbor.drivers.redis.resp import Address, Command
from taskharbor.model.errors import BackendUnavailable

PAUSE_S = 0.1  # between two attempts to find a primary
CHECK_EVERY_S = 1.0  # for which an answer of the sentinels is good
CHECK_TIMEOUT_S = 0.1  # for which a call waits for a new answer: sentinels that are away must not hold up the jobs
SentinelAnswer = tuple[int, Address]  # the epoch of a sentinel's configuration, and the primary in it


class Misdirected(ConnectionError):
    """The server is not a Sentinel, or does not watch the service: waiting does not help."""


def login_refused() -> Misdirected:
    return Misdirected("a sentinel refused the login: give its own, with sentinel_username and sentinel_password")


def sentinel_questions(options: RedisOptions) -> list[Command]:
    """What a sentinel is asked about the service."""
    return [("SENTINEL", "GET-MASTER-ADDR-BY-NAME", options.service), ("SENTINEL", "MASTER", options.service)]


def read_answer(where: Any, facts: Any, sentinel: str) -> SentinelAnswer | None:
    """A sentinel's answer to `sentinel_questions`; None if it does not know the service."""
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


class PrimaryPool(RedisPool):
    """Connections to a server that says on each of them that it is a primary."""

    async def _dial(self) -> RespConnection:
        connection = await super()._dial()
        try:
            (role,) = await connection.call([("ROLE",)], self._options.connect_timeout)
        except BaseException:
            await connection.disconnect()
            raise
        if isinstance(role, list) and role[0] != b"master":  # a user who may not ask learns it by READONLY
            await connection.disconnect()
            raise ReadOnlyError(f"{self.name}, which the sentinels name, is a replica")
        return connection


class SentinelEndpoint(Endpoint):
    """Calls to whichever server is the primary of a service."""

    def __init__(self, options: RedisOptions, dsn: str) -> None:
        super().__init__(options, dsn)
        self._sentinels = [RedisPool(options.for_sentinels(), address) for address in options.hosts]
        self._primary: PrimaryPool | None = None
        self._finding = asyncio.Lock()
        self._check_at = 0.0
        self._checking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self.ask("PING")
        try:
            await self._check(await self._found())
        except LOST as error:
            raise self.unavailable(error) from error

    async def close(self) -> None:
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)
        for pool in (*self._sentinels, self._primary):
            if pool is not None:
                await pool.close()

    async def addresses(self) -> list[Address]:
        return [(await self._found()).address]

    # Who the primary is

    async def _found(self) -> PrimaryPool:
        if self._primary is not None:
            return self._primary
        async with self._finding:
            if self._primary is None:
                self._primary = PrimaryPool(self.options, await self._address())
                self._check_at = monotonic() + CHECK_EVERY_S
            return self._primary

    async def _current(self) -> PrimaryPool:
        """The primary, by an answer of the sentinels that is not old, if they answer at once."""
        pool, now = await self._found(), monotonic()
        if now < self._check_at or (self._checking is not None and not self._checking.done()):
            return pool
        self._check_at = now + CHECK_EVERY_S
        self._checking = asyncio.create_task(self._check_primary(pool), name="taskharbor-sentinel")
        await asyncio.wait([self._checking], timeout=CHECK_TIMEOUT_S)
        return await self._found()

    async def _check_primary(self, pool: PrimaryPool) -> None:
        try:
            if await self._address() != pool.address:
                await self._left(pool)
        except (*LOST, *AWAY, ResponseError):
            pass  # no sentinel answers: the primary is as good as before

    async def _left(self, pool: PrimaryPool) -> None:
        """Ask again who is the primary before the next call."""
        if self._primary is pool:
            self._primary = None
        await pool.close()

    async def _address(self) -> Address:
        asked = [asyncio.create_task(self._asked(pool)) for pool in self._sentinels]
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
        return chosen_primary(answers, failed, self.options)

    async def _asked(self, sentinel: RedisPool) -> SentinelAnswer | None:
        """A sentinel's answer; None if it does not know the service."""
        try:
            where, facts = await sentinel.call(*sentinel_questions(self.options))
        except AuthenticationError as error:
            raise login_refused() from error
        except LOST:
            await sentinel.drop_idle()
            raise
        return read_answer(where, facts, sentinel.name)

    # Calls

    async def _send(self, key: str, commands: MakeCommands, *, repeat: bool, within: float | None = None) -> list[Any]:
        end = monotonic() + self.options.timeout
        tries = 0
        while True:
            pool = None
            try:
                pool = await self._current()
                return checked(await pool.call(*commands(tries > 0), within=within))
            except NoScriptError:
                raise
            except (*LOST, *AWAY) as error:
                tries += 1
                if pool is not None:
                    await self._left(pool)
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
        pool = await self._found()
        try:
            return await dial(self.options, pool.address)
        except BaseException:
            await self._left(pool)
            raise

    def unavailable(self, error: BaseException) -> BackendUnavailable:
        made = super().unavailable(error)
        made.lasting = made.lasting or isinstance(error, Misdirected)
        return made
