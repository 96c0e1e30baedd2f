"""The stores that the flow tests run on: every driver that has landed. A further one adds a line to STORES.

A line is a name and a function of a fresh folder that answers a DSN of an empty store, or None where it cannot run.
"""

import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from taskharbor import Client, Harbor

MakeHarbor = Callable[..., Harbor]


@functools.cache
def _database() -> str:
    from tests.servers import postgres

    return postgres.shared().address(postgres.shared().store())


def _postgres(folder: Path) -> str | None:
    """One database for a process of tests, emptied for each of them."""
    from tests.servers import postgres

    try:
        postgres.empty(_database())
    except postgres.Missing:
        return None
    return _database()


def _redis(folder: Path) -> str | None:
    """One server for a process of tests, emptied for each of them."""
    from tests.servers import redis

    try:
        redis.shared().empty()
    except redis.Missing:
        return None
    return redis.shared().url


STORES: dict[str, Callable[[Path], str | None]] = {
    "memory": lambda folder: "memory://",
    "sqlite": lambda folder: f"sqlite:///{folder / 'harbor.db'}",
    "postgresql": _postgres,
    "redis": _redis,
}
DURABLE = ("sqlite", "postgresql", "redis")
NAMES = list(STORES)


def call_store(client: Client, call: Callable[[Any], Awaitable[Any]]) -> Any:
    """Make a call of the driver, on the portal's loop and retried as the client's own calls are."""
    store = client._store
    return store.portal.call(lambda: store.call("test").ask(call), "test.call_store")
