"""Stores for the tests of the Redis driver: the servers that this process shares, emptied, and damaged on request."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import redis

from taskharbor.drivers.redis import RedisDriver
from taskharbor.drivers.redis.housekeeping import visit
from taskharbor.drivers.redis.store import RedisStore
from tests.servers import redis as servers

DAMAGES = {
    "type": ("HDEL", "th_type"),
    "payload": ("HDEL", "payload"),
    "number": ("HSET", "attempt", "many"),
    "state": ("HSET", "state", "nobody knows"),
}


def emptied(kind: servers.Kind = "redis7") -> str:
    """The address of a shared server without a key in it."""
    server = servers.shared(kind)
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
    return server.url


def with_driver(dsn: str, story: Callable[[Any], Awaitable[Any]]) -> Any:
    """Run a story with an open driver."""

    async def run() -> Any:
        driver = RedisDriver(dsn)
        await driver.open()
        try:
            return await story(driver)
        finally:
            await driver.close()

    return asyncio.run(run())


async def visit_all(store: RedisStore, queues: Sequence[str], now: int) -> None:
    """Look after these queues and all others until nothing is left to do; a worker does it in rounds."""
    for queue in dict.fromkeys([*queues, *await store.router.known_queues()]):
        while await visit(store, queue, now, 0):
            pass


def with_cluster_clients(story: Callable[..., Awaitable[None]], clients: int = 2) -> None:
    """Run a story with several open drivers on the shared Cluster, emptied."""

    async def run() -> None:
        servers.shared_cluster().empty()
        drivers = [RedisDriver(f"{servers.shared_cluster().url}?checks=0") for _ in range(clients)]
        for driver in drivers:
            await driver.open()
        try:
            await story(*drivers)
        finally:
            for driver in drivers:
                await driver.close()

    asyncio.run(run())


def live(story: Callable[[Any, Any], Awaitable[None]], kind: Any = "redis7", *, housekeeping: bool = True) -> None:
    """Run a story with an open driver on an empty store, and a client of the same store. `kind`: of a server, or
    "cluster". `housekeeping`: whether the driver does it beside its calls."""

    async def run(driver: RedisDriver) -> None:
        if not housekeeping:
            keeper: Any = driver.opened.housekeeper
            keeper.serve = lambda *_: None
        with client:
            await story(driver, client)

    if kind == "cluster":
        servers.shared_cluster().empty()
        dsn, client = servers.shared_cluster().url, servers.shared_cluster().client()
    else:
        dsn, client = emptied(kind), servers.shared(kind).client()
    with_driver(f"{dsn}?checks=0", run)


def as_test(run: Callable[..., None], *, opens: int = 2, **options: Any) -> Callable[[Any], Any]:
    """A decorator for a test that is a coroutine. `run` calls it with its first parameters, `opens` of them. The others
    are fixtures and parameters of the test; `server`, or else `kind`, is given to `run` as well."""

    def decorate(test: Any) -> Any:
        others = inspect.Signature(list(inspect.signature(test).parameters.values())[opens:])

        @functools.wraps(test)
        def wrapped(*args: Any, **named: Any) -> None:
            given = others.bind(*args, **named).arguments
            chosen = [given[name] for name in ("server", "kind") if name in given][:1]
            run(lambda *opened: test(*opened, **given), *chosen, **options)

        made: Any = wrapped
        made.__signature__ = others  # what pytest is asked for
        return made

    return decorate


on_store, on_quiet_store = as_test(live), as_test(live, housekeeping=False)
on_cluster = as_test(with_cluster_clients)


def damage(client, id: str, how: str) -> None:
    """Damage the record of a job, in whichever queue it is."""
    (key,) = [key for key in client.scan_iter("{*}:job:*", count=1000) if key.endswith(f"}}:job:{id}".encode())]
    command, *rest = DAMAGES[how]
    client.execute_command(command, key, *rest)


FIELDS = {
    "type": "th_type",
    "payload": "payload",
    "run_at": "due_ms",
    "priority": "th_pri",
    "attempts": "th_fail",
    "max_attempts": "th_max",
    "deliveries": "attempt",
    "lost": "th_lost",
    "idempotency_key": "th_key",
    "group": "gid",
    "group_limit": "th_x",
    "depends_on": "th_deps",
    "flow_id": "th_flow",
    "handed_to": "th_heir",
    "metadata": "th_x",
    "last_error": "last_error",
    "failed_at": "last_error_ms",
    "reason": "th_reason",
    "created_at": "created_ms",
    "finished_at": "th_fin",
    "result": "th_res",
    "state": "state",
    "timeout": "timeout_ms",
    "began_at": "th_began",
    "ran_on": "th_worker",
    "trail": "th_trail",
    "error_class": "th_err",
    "fingerprint": "th_fp",
    "note": "th_note",
    "edits": "th_ed",
    "keep_for": "th_keep",
    "has_memos": "th_memo",
}
VALUES = {
    "empty": b"",
    "word": b"many",
    "bytes": b"\xff\xfe",
    "negative": b"-1",
    "huge": str(2**62).encode(),
    "fraction": b"1.5",
    "infinite": b"inf",
    "nested": b'[["x"]]',
}


def damage_field(client, id: str, field: str, kind: str) -> bool:
    """Put a wrong value into a field of a job's hash, or take it out."""
    (key,) = [key for key in client.scan_iter("{*}:job:*", count=1000) if key.endswith(f"}}:job:{id}".encode())]
    if kind == "missing":
        client.hdel(key, FIELDS[field])
    else:
        client.hset(key, FIELDS[field], VALUES[kind])
    return True
