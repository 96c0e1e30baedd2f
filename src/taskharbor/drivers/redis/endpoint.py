"""Where commands and scripts go: one server, and what an error of it means.

A call whose reply was lost is repeated once on a fresh connection where that is harmless. If its `now` decides about
leases and order, the repeat adds the time that has passed. If the repeat fails too, the call raises BackendUnavailable
from the error of the connection. An error text of Redis may quote what was stored, so only its first word is passed on.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    MasterDownError,
    NoPermissionError,
    NoScriptError,
    ReadOnlyError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from taskharbor.drivers.dsn import conceals
from taskharbor.drivers.redis import server_checks, tls
from taskharbor.drivers.redis.connection import RespConnection, dial
from taskharbor.drivers.redis.options import RedisOptions
from taskharbor.drivers.redis.pool import RedisPool
from taskharbor.drivers.redis.resp import Address, Command, monotonic
from taskharbor.drivers.redis.scripts import ScriptCall, binary, by_hash, by_text, script_for
from taskharbor.model.errors import BackendUnavailable, DriverError

LOST = (ConnectionError, TimeoutError, OSError)
AWAY = (BusyLoadingError, ReadOnlyError, MasterDownError, ClusterDownError, TryAgainError)
AWAY_WORDS = ("MISCONF", "NOREPLICAS", "OOM", "BUSY", "UNBLOCKED")
BUSY = "Redis is busy: a script of another call has run for longer than its busy-reply-threshold (5 s by default)"
FULL = "Redis is full (maxmemory): it refuses new jobs until there is room; raise maxmemory, or prune or delete jobs"
DENIED = ("NOPERM", "user executing the script", "ACL failure in script")  # words of errors about permissions
NOT_ALLOWED = (
    "Redis refused the call: this user may not do everything that is needed; taskharbor doctor names what is missing, "
    "docs/driver-redis.md the whole list"
)
MAX_CALL_BYTES = 512 << 20  # the default of a server's proto-max-bulk-len
NO_SERVER = (
    "the server does not know a command that every Redis has: if it is a Sentinel, expected "
    "redis+sentinel://host:26379/service with the name of the service that it watches"
)

MakeCommands = Callable[[bool], list[Command]]  # what to send; the argument: whether an earlier try may have arrived
ScanPosition = tuple[int, bytes]  # in a walk through all keys: the number of a node, and its cursor
T = TypeVar("T")
SLOWEST_S = 1.0  # if no part of a call ends in this time, and others have, the rest is given up
COMMON_TAG = "th"  # the hash tag of a script that belongs to no queue


class Endpoint:
    """Calls to one server. `ClusterEndpoint` finds the server of a queue first, `SentinelEndpoint` the primary."""

    cluster = False
    left_out = 0  # how often the keys of a node that did not answer were left out

    def __init__(
        self, options: RedisOptions, dsn: str, pool: RedisPool | None = None, deadline: float = math.inf
    ) -> None:
        self.options = options
        self._dsn = dsn
        self._pool = RedisPool(options, options.hosts[0]) if pool is None else pool
        self.deadline = deadline  # by which every call ends, as `monotonic` counts

    async def open(self) -> None:
        await self.ask("PING")
        await self._check(self._pool)

    async def _check(self, pool: RedisPool) -> None:
        if not self.options.checks:
            return
        try:
            info = await pool.ask("INFO", deadline=self.deadline)
        except LOST as error:
            raise self.unavailable(error) from error
        except ResponseError:
            return  # this user may not run INFO
        warnings = server_checks.judge(self.options, server_checks.info_text(info))
        server_checks.log_warnings(f"redis at {pool.name}", warnings)

    async def addresses(self) -> list[Address]:
        """The servers that calls go to."""
        return [self.options.hosts[0]]

    async def denied(self) -> list[str]:
        """Permissions that this user lacks there, a sentence each. The endpoint need not be open."""
        found: list[str] = []
        for address in await self.addresses():
            # Without a name and a database: these may be what is not allowed.
            made = await dial(replace(self.options, database=0), address, client_name=None)
            try:
                found += await server_checks.denied(made, self.options)
            finally:
                await made.disconnect()
        return list(dict.fromkeys(found))

    async def close(self) -> None:
        await self._pool.close()

    async def ask(self, *command: Any, key: str = "", repeat: bool = True) -> Any:
        """One command, at the server of a key."""
        return (await self._send(key, lambda is_repeat: [command], repeat=repeat))[0]

    async def write(self, *command: Any, key: str) -> Any:
        """One command that writes, at the server of a key. Unlike `ask` it works on a full server too."""
        command = tuple(binary(_bytes(part)) for part in command)
        return await self.run(ScriptCall("run_command", home=key[1 : key.index("}")], command=command))

    async def run(
        self,
        call: ScriptCall,
        *,
        repeat: bool = True,
        durable: bool = False,
        within: float | None = None,
        timed: bool = False,
    ) -> Any:
        """Run a script, at the server of its `home`.

        `repeat`: send it again if its reply was lost. `durable`: return when replicas have it, if the DSN asks for
        that. `within`: give each try up after this many seconds, if that is sooner than usual. `timed`: a further try
        adds the time that has passed to `now`.
        """
        script = script_for(call.script, self.options.omniq_index, self.options.database)
        hash_tag = call.home or COMMON_TAG
        began = monotonic()
        replicas = self.options.durable if durable else 0
        command_of, may_have_arrived = by_hash, False

        def commands(is_repeat: bool) -> list[Command]:
            nonlocal may_have_arrived
            may_have_arrived = may_have_arrived or is_repeat
            argument = call.packed(script, self.cluster, elapsed_ms(began) if timed and may_have_arrived else 0)
            refuse_large(len(argument))
            found: list[Command] = [command_of(script, hash_tag, argument, self.cluster)]
            if replicas:
                found.append(("WAIT", replicas, round(self.options.timeout * 500)))
            return found

        try:
            replies = await self._send(f"{{{hash_tag}}}", commands, repeat=repeat, within=within)
        except NoScriptError:
            command_of = by_text
            replies = await self._send(f"{{{hash_tag}}}", commands, repeat=repeat, within=within)
        if replicas and replies[1] < replicas:
            raise BackendUnavailable(
                f"written, but not confirmed: {replies[1]} of {replicas} replica(s) have it; send the call again"
            )
        return replies[0]

    async def gather(self, calls: Sequence[Awaitable[T]]) -> list[T]:
        """Make several calls at once; the first error is raised when all have ended, so that none is left running."""
        results = await asyncio.gather(*calls, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if not isinstance(result, BaseException)]

    async def each(self, calls: Sequence[Awaitable[T]]) -> list[T | BackendUnavailable]:
        """Make several calls at once, each by itself: the result of each, or why its server could not be reached.
        Raises if none could be. When one has answered, and for SLOWEST_S none ended, the others are given up."""
        if len(calls) == 1:
            return [await calls[0]]
        results: dict[int, T | BackendUnavailable] = {}

        async def alone(place: int, call: Awaitable[T]) -> None:
            try:
                results[place] = await call
            except BackendUnavailable as error:
                results[place] = error

        tasks = [asyncio.ensure_future(alone(place, call)) for place, call in enumerate(calls)]
        try:
            waiting: set[asyncio.Task[None]] = set(tasks)
            while waiting:
                before = len(results)
                _, waiting = await asyncio.wait(waiting, timeout=SLOWEST_S)
                if len(results) == before and not all(isinstance(one, BackendUnavailable) for one in results.values()):
                    break
        finally:
            for task in tasks:
                task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if ended is not None and not isinstance(ended, asyncio.CancelledError):
                raise ended
        late = self.unavailable(error := TimeoutError("it did not answer while other nodes did"))
        late.__cause__ = error
        failed = [one for one in results.values() if isinstance(one, BackendUnavailable)]
        if failed and len(failed) == len(calls):
            raise failed[0]
        return [results.get(place, late) for place in range(len(calls))]

    async def time(self) -> tuple[int, int]:
        """What the server's clock says: seconds since 1970, and microseconds."""
        seconds, micros = await self.ask("TIME")
        return int(seconds), int(micros)

    async def size(self) -> int:
        """How many keys there are."""
        number: int = await self.ask("DBSIZE")
        return number

    async def scan_step(
        self, position: ScanPosition | None, pattern: str, count: int
    ) -> tuple[ScanPosition | None, list[bytes]]:
        """Some of the keys that match a pattern, and the position of the next ones. It is None before the first and
        after the last step."""
        _, cursor = position or (0, b"0")
        cursor, keys = await self.ask("SCAN", cursor, "MATCH", pattern, "COUNT", count)
        return None if cursor == b"0" else (0, cursor), keys

    async def connection(self) -> RespConnection:
        """A connection of its own, for a subscription."""
        return await dial(self.options, self.options.hosts[0])

    async def _send(self, key: str, commands: MakeCommands, *, repeat: bool, within: float | None = None) -> list[Any]:
        for is_repeat in (False, True):
            try:
                return checked(await self._pool.call(*commands(is_repeat), within=within, deadline=self.deadline))
            except LOST as error:
                await self._pool.drop_idle()
                if is_repeat or not repeat:
                    raise self.unavailable(error) from error
            except AWAY as error:
                await self._pool.drop_idle()
                raise self.unavailable(error) from error
            except ResponseError as error:
                raise refused(self, error) from error
        raise AssertionError("the repeat returns or raises")

    def unavailable(self, error: BaseException) -> BackendUnavailable:
        """An error of a connection as callers get it, without any part of the login."""
        text = " ".join(str(error).split())[:300]
        if not text or isinstance(error, AuthenticationError) or not conceals(self._dsn, text):
            text = type(error).__name__
        advice, lasting = tls.advice(error) if self.options.tls else ("", False)
        made = BackendUnavailable(f"Redis did not answer: {text.rstrip('.')}{advice}")
        made.lasting = lasting
        if isinstance(error, AuthenticationError):
            made = BackendUnavailable(f"Redis refused the login: {text}")
            made.lasting = True
        return made


def _bytes(part: Any) -> bytes:
    return part if isinstance(part, bytes) else str(part).encode()


def checked(replies: list[Any]) -> list[Any]:
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


def refused(endpoint: Endpoint, error: ResponseError) -> Exception:
    """An error reply as callers get it: the store cannot take the call now, or there is a mistake."""
    if isinstance(error, NoScriptError):
        return error
    word = (str(error).split() or [""])[0].strip(":")
    if word == "OOM":
        return BackendUnavailable(FULL)
    if word == "BUSY":
        made = BackendUnavailable(BUSY)
        made.passing = True
        return made
    if isinstance(error, AuthenticationError) or word in AWAY_WORDS:
        return endpoint.unavailable(error)
    if "DB index is out of range" in str(error):
        return DriverError("the server has no database of the number that ends the address; leave it out for 0")
    if isinstance(error, NoPermissionError) or any(mark in str(error) for mark in DENIED):
        return DriverError(NOT_ALLOWED)
    if "unknown command" in str(error).lower():
        return DriverError(NO_SERVER)
    if "cluster support disabled" in str(error):
        return DriverError("the server is not part of a Cluster: expected redis://host:port, got redis+cluster://")
    return DriverError(f"Redis refused the call: {type(error).__name__} {word if word.isupper() else ''}".rstrip())


def refuse_large(size: int) -> None:
    """DriverError for a call that is larger than a server accepts."""
    if size > MAX_CALL_BYTES:
        limit = MAX_CALL_BYTES >> 20
        raise DriverError(
            f"Redis takes at most {limit} MB in one call, this one has {size >> 20}: divide it among several"
        )


def elapsed_ms(began: float) -> int:
    """Whole milliseconds since a moment of `monotonic`."""
    return int((monotonic() - began) * 1000)
