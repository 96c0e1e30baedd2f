"""Servers and clients of the OmniQ tests: every kind of client, on every kind of server, empty for each test.

A standalone server is shared with other tests of the process; these use a database of their own on it.
"""

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple, cast

import pytest
import redis
import redis.asyncio

from taskharbor.omniq import AsyncOmniQ, OmniQ
from tests.omniq.peers import VERSIONS, Peer, Side
from tests.omniq.store import Store
from tests.servers import redis as servers

DATABASE = 9


class Blocking:
    """An AsyncOmniQ as a synchronous client, on a loop of its own: the same tests run on both."""

    def __init__(self, make: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.client: AsyncOmniQ = self.loop.run_until_complete(self._made(make))

    async def _made(self, make: Any) -> AsyncOmniQ:
        return AsyncOmniQ(make())

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.client, name)
        if not inspect.iscoroutinefunction(method):
            return method
        return lambda *args, **options: self.loop.run_until_complete(method(*args, **options))

    def close(self) -> None:
        given: Any = self.client._runner._client
        self.loop.run_until_complete(given.aclose())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


def url(server: servers.Server) -> str:
    return f"redis://127.0.0.1:{server.port}/{DATABASE}"


class Kind(NamedTuple):
    """A kind of client on a kind of server."""

    server: servers.Kind | None  # None: the Cluster
    text: bool = False
    asynchronous: bool = False
    indexed: bool = True


KINDS = {
    "bytes": Kind("redis7"),
    "text": Kind("redis7", text=True),
    "async": Kind("redis7", asynchronous=True),
    "async-text": Kind("redis7", text=True, asynchronous=True),
    "redis6": Kind("redis6"),
    "valkey": Kind("valkey"),
    "unindexed": Kind("redis7", indexed=False),
    "cluster": Kind(None),
    "async-cluster": Kind(None, text=True, asynchronous=True),
}


class Both(NamedTuple):
    """A client under test and the queue `jobs` as the server has it."""

    q: OmniQ
    store: Store


@pytest.fixture
def both(request: pytest.FixtureRequest) -> Iterator[Both]:
    """Every kind of client, on an empty server. Parametrize it with `KINDS`."""
    kind = KINDS[request.param]
    with ExitStack() as stack:
        if kind.server is None:
            cluster = servers.shared_cluster()
            cluster.empty()
            raw = stack.enter_context(cluster.client())
            where: dict[str, Any] = {"host": "127.0.0.1", "port": cluster.nodes[0].port}
            plain: Any = redis.RedisCluster
            awaited: Any = redis.asyncio.RedisCluster
        else:
            server = servers.shared(kind.server)
            where = {"host": "127.0.0.1", "port": server.port, "db": DATABASE}
            plain, awaited = redis.Redis, redis.asyncio.Redis
            raw = stack.enter_context(plain(**where))
            raw.flushdb()
        if not kind.indexed:
            q = stack.enter_context(OmniQ(f"{url(servers.shared())}?omniq_index=0"))
            yield Both(q, Store(raw, "jobs"))
        elif kind.asynchronous:
            blocking = Blocking(lambda: awaited(**where, decode_responses=kind.text))
            stack.callback(blocking.close)
            yield Both(cast(OmniQ, blocking), Store(raw, "jobs"))
        else:
            client = stack.enter_context(plain(**where, decode_responses=kind.text))
            yield Both(OmniQ(client), Store(raw, "jobs"))


@pytest.fixture
def server() -> servers.Server:
    """Redis 7, with an empty database for this test."""
    found = servers.shared()
    with redis.Redis.from_url(url(found)) as client:
        client.flushdb()
    return found


@pytest.fixture
def raw(server: servers.Server) -> Iterator[Any]:
    """A plain client of the same database, which answers bytes."""
    with redis.Redis.from_url(url(server)) as client:
        yield client


@pytest.fixture
def q(server: servers.Server) -> Iterator[OmniQ]:
    """The client under test, on Redis 7."""
    with OmniQ(url(server)) as client:
        yield client


@pytest.fixture
def store(raw: Any) -> Store:
    """The queue `jobs`, as the server has it."""
    return Store(raw, "jobs")


@pytest.fixture(scope="module")
def sides() -> Iterator[dict[str, Side]]:
    """The three clients on one server: ours, 1.7.0, 4.0.0."""
    server = servers.shared()
    ours = OmniQ(url(server))
    peers = [Peer(version, server.port, DATABASE) for version in VERSIONS]
    yield {"ours": Side("ours", ours)} | {peer.name: Side(peer.name, peer) for peer in peers}
    ours.close()
    for peer in peers:
        peer.close()
