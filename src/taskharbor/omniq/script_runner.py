"""Running operations on a server: through a redis-py client, the caller's or one made from a URL.

Replies are read as bytes whatever the client decodes: `decode_responses` would fail on text that another program cut in
the middle of a character, after the state has changed. A client that the caller passed is never closed here.
"""

from __future__ import annotations

import asyncio
import time
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import redis
import redis.asyncio.retry
import redis.asyncio.sentinel
import redis.retry
import redis.sentinel
from redis.backoff import NoBackoff
from redis.client import NEVER_DECODE

from taskharbor.drivers.redis import tls
from taskharbor.drivers.redis.endpoint import AWAY, AWAY_WORDS, FULL
from taskharbor.drivers.redis.options import OURS, RedisOptions, hosts_of, parse
from taskharbor.drivers.redis.resp import cause_of
from taskharbor.drivers.redis.scripts import Script, anchors, binary, compose, pack, tuned
from taskharbor.model.clock import StoreClock
from taskharbor.model.errors import BackendUnavailable
from taskharbor.omniq.operations import OmniqCall
from taskharbor.omniq.values import refusal

T = TypeVar("T")

TIMEOUT_S = 5.0  # a server that is silent for this long cannot be reached
_PLAIN = ("redis://", "rediss://", "unix://", "redis+unix://")
_SENTINEL = "redis+sentinel://"
_CLUSTERS = {"redis+cluster://": "redis://", "rediss+cluster://": "rediss://"}
MAX_WAIT_S = 10.0  # for which a call waits while its hash slot moves or has no primary
PAUSE_S = 0.1  # between two attempts
_MOVING = (redis.exceptions.ClusterError, redis.exceptions.AskError, redis.exceptions.TryAgainError)
_LOST = (
    *(redis.ConnectionError, redis.TimeoutError, redis.exceptions.RedisClusterException, OSError),
    *(*AWAY, *_MOVING),
)
_REFUSED = "OMNIQ "
_monotonic = StoreClock().monotonic
AS_BYTES: dict[str, Any] = {NEVER_DECODE: []}


class _Server:
    """A client of a server, and what scripts must know about both."""

    plain: ClassVar[type[Any]]
    cluster: ClassVar[type[Any]]
    expected: ClassVar[str]  # what it may be given
    instead: ClassVar[str]  # the class for what it refuses

    def __init__(self, target: Any) -> None:
        self._own = isinstance(target, str)
        self._indexed = not self._own or _is_indexed(target)
        self._sentinels: list[Any] = []
        self._client = _opened(target, self.plain, self.cluster, self._sentinels) if self._own else target
        if not isinstance(self._client, (self.plain, self.cluster)):
            got = f"{type(target).__module__}.{type(target).__name__}"
            raise TypeError(f"{self.expected}, got {got}; {self.instead}")
        self._is_cluster = isinstance(self._client, self.cluster)
        pool = {} if self._is_cluster else self._client.connection_pool.connection_kwargs
        self._database = int(pool.get("db") or 0)

    def prepared(self, operation: OmniqCall[Any]) -> tuple[Script, tuple[Any, ...]]:
        now, *rest = operation.arguments
        argument = pack((now, self._is_cluster, operation.base[1:-1], *map(_packable, rest)))
        keys = [key.encode() for key in anchors(operation.base[1:-1], self._is_cluster)]
        return tuned(script(operation.script), self._indexed, self._database), (len(keys), *keys, argument)


class ScriptRunner(_Server):
    """Runs operations on a synchronous client."""

    plain, cluster = redis.Redis, redis.RedisCluster
    expected = "OmniQ: expected a URL, a redis.Redis or a redis.RedisCluster"
    instead = "for redis.asyncio use AsyncOmniQ"

    def run(self, operation: OmniqCall[T]) -> T:
        script, arguments = self.prepared(operation)
        end = _monotonic() + MAX_WAIT_S
        while True:
            try:
                try:
                    reply = self._client.execute_command("EVALSHA", script.sha, *arguments, **AS_BYTES)
                except redis.exceptions.NoScriptError:
                    reply = self._client.execute_command("EVAL", script.text, *arguments, **AS_BYTES)
                return operation.read(reply)
            except (redis.RedisError, OSError) as error:
                _raise_unless_moving(error, operation.script, self._is_cluster, end)
            time.sleep(PAUSE_S)

    def close(self) -> None:
        if self._own:
            for client in (self._client, *self._sentinels):
                client.close()


class AsyncScriptRunner(_Server):
    """Runs operations on an asynchronous client."""

    plain, cluster = redis.asyncio.Redis, redis.asyncio.RedisCluster
    expected = "AsyncOmniQ: expected a URL, or a Redis or RedisCluster of redis.asyncio"
    instead = "for synchronous ones use OmniQ"

    async def run(self, operation: OmniqCall[T]) -> T:
        script, arguments = self.prepared(operation)
        end = _monotonic() + MAX_WAIT_S
        while True:
            try:
                try:
                    reply = await self._client.execute_command("EVALSHA", script.sha, *arguments, **AS_BYTES)
                except redis.exceptions.NoScriptError:
                    reply = await self._client.execute_command("EVAL", script.text, *arguments, **AS_BYTES)
                return operation.read(reply)
            except (redis.RedisError, OSError) as error:
                _raise_unless_moving(error, operation.script, self._is_cluster, end)
            await asyncio.sleep(PAUSE_S)

    async def close(self) -> None:
        if self._own:
            for client in (self._client, *self._sentinels):
                await client.aclose()


@cache
def script(name: str) -> Script:
    """A script of this package: the driver's fragments, what its scripts have in common, its own text."""
    folder = files("taskharbor.omniq") / "lua"
    parts = [(folder / f"{part}.lua").read_text(encoding="utf-8") for part in ("face", name)]
    return compose(name, "\n".join(parts))


def _is_indexed(url: str) -> bool:
    """Whether the index of OmniQ 4.0 is kept: see `omniq_index` in docs/driver-redis.md."""
    return dict(parse_qsl(urlsplit(url).query)).get("omniq_index") != "0"


def _packable(value: Any) -> Any:
    """Bytes as MessagePack text, whatever is in them: Redis knows no other strings."""
    if isinstance(value, list):
        return [_packable(each) for each in value]
    return binary(value) if isinstance(value, bytes) else value


def _opened(url: str, plain: Any, cluster: Any, sentinels: list[Any]) -> Any:
    """A client for a URL: of one server, of a Cluster, or of the primary that sentinels name (which are added to
    `sentinels`)."""
    schemes = (*_PLAIN, *_CLUSTERS, _SENTINEL)
    scheme = next((each for each in schemes if url.startswith(each)), None)
    if scheme is None:
        raise ValueError(f"expected a URL that begins with one of {', '.join(schemes)}; got another scheme, or none")
    awaited = plain is redis.asyncio.Redis
    # One retry after a lost connection: every script may be sent again.
    retry = (redis.asyncio.retry.Retry if awaited else redis.retry.Retry)(NoBackoff(), 1)
    alone: dict[str, Any] = {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S, "retry": retry}
    if scheme == _SENTINEL:
        watching = (redis.asyncio.sentinel if awaited else redis.sentinel).Sentinel
        return _watched(parse(url), alone, watching, sentinels)
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    encrypted = scheme.startswith("rediss") or given.get("tls") == "1"
    settings: dict[str, Any] = {**dict(tls.settings(given, encrypted)), "socket_timeout": TIMEOUT_S}
    # The driver's options may be in the same URL: a client of OmniQ ignores them, except omniq_index (`_is_indexed`).
    rest = {name: value for name, value in given.items() if name not in OURS | tls.OPTIONS | {"tls"}}
    if scheme in _CLUSTERS:
        real, (who, at, where) = "redis://", parts.netloc.rpartition("@")
        node = redis.asyncio.cluster.ClusterNode if awaited else redis.cluster.ClusterNode
        settings["startup_nodes"] = [node(host, port) for host, port in hosts_of(where, True)]
        netloc = f"{who}{at}{where.partition(',')[0]}"
    else:
        settings |= alone
        real, netloc = scheme.removeprefix("redis+"), parts.netloc
    address = f"{'rediss://' if encrypted else real}{netloc}{parts.path}?{urlencode(rest)}"
    return (cluster if scheme in _CLUSTERS else plain).from_url(address, **settings)


def _watched(options: RedisOptions, settings: dict[str, Any], watching: Any, sentinels: list[Any]) -> Any:
    """A client of the primary that the sentinels name; they are asked again for each new connection."""

    def login(who: RedisOptions) -> dict[str, Any]:
        encrypted = {"ssl": True, **dict(who.ssl)} if who.tls else {}
        return {"username": who.username, "password": who.password, **settings, **encrypted}

    watch = watching(options.hosts, sentinel_kwargs=login(options.for_sentinels()))
    sentinels += watch.sentinels
    return watch.master_for(options.service, db=options.database, **login(options))


def _raise_unless_moving(error: Exception, where: str, cluster: bool, end: float) -> None:
    """Raise the error as callers get it, unless a Cluster is moving the queue and there is time to call again."""
    if cluster and isinstance(error, _MOVING) and _monotonic() <= end:
        return
    meaning = _meaning(error, where, cluster)
    if meaning is None:
        raise error
    raise meaning from error


def _meaning(error: Exception, where: str, cluster: bool) -> Exception | None:
    """An exception of redis-py as callers get it; None: unchanged."""
    text = str(error)
    if isinstance(error, redis.ResponseError) and text.startswith(_REFUSED):
        return refusal(text.removeprefix(_REFUSED).split()[0], where)
    if isinstance(error, redis.exceptions.AskError) and not cluster:
        return TypeError(
            "this server is one node of a Redis Cluster: give the URL redis+cluster://host:port, or a RedisCluster"
        )
    word = (cause_of(text).split() or [""])[0].strip(":")
    if isinstance(error, redis.exceptions.OutOfMemoryError) or word == "OOM":
        return BackendUnavailable(FULL)
    advice = tls.advice(error)[0] if "SSL" in text or "CERTIFICATE" in text else ""
    if isinstance(error, _LOST) or word in (*AWAY_WORDS, "READONLY"):
        return BackendUnavailable(f"the Redis server cannot be reached ({type(error).__name__}){advice}")
    return None
