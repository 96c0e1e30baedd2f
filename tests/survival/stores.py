"""The stores of the table: an empty one for each row, and how it is killed and started again."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.servers import postgres, redis

TITLES = {
    "memory": "memory",
    "sqlite": "SQLite",
    "postgres": "PostgreSQL",
    "redis": "Redis",
    "cluster": "Redis Cluster",
}


@dataclass
class Store:
    """One empty store. `servers`: its processes, for rows that kill them; a file has none."""

    name: str
    dsn: str
    servers: list[Any] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    settle: Callable[[], object] = lambda: None  # until all its servers serve again

    def restart(self) -> None:
        """kill -9 of one server (on a Cluster: the primary of the default queue), and start it again at once."""
        server = self.servers[0]
        server.kill()
        server.start()
        self.settle()


def shared_store(name: str, folder: Path) -> Store:
    """On the servers that the tests of this process share."""
    if name == "memory":
        return Store(name, "memory://")
    if name == "sqlite":
        return Store(name, f"sqlite:///{folder}/jobs.db")
    if name == "postgres":
        server = postgres.shared()
        return Store(name, server.address(server.store()), [server], [server.port])
    if name == "redis":
        redis.shared().empty()
        return Store(name, f"{redis.shared().url}?checks=0", [redis.shared()], [redis.shared().port])
    cluster = redis.shared_cluster()
    cluster.empty()
    return Store(name, f"{cluster.url}?checks=0", cluster.nodes, [node.port for node in cluster.nodes])


@contextmanager
def own_store(name: str, folder: Path) -> Iterator[Store]:
    """On a server of the row's own, which it may kill. Redis writes an append-only file."""
    if name in ("memory", "sqlite"):
        yield shared_store(name, folder)
        return
    made: Any
    if name == "postgres":
        made = postgres.Server()
        found = Store(name, made.address(made.store()), [made], [made.port])
    elif name == "redis":
        made = redis.Server("redis7", aof=True)
        found = Store(name, f"{made.url}?checks=0", [made], [made.port])
    else:
        # A node that is back within this time keeps its slots: no replica takes over, so nothing can be lost.
        made = redis.Cluster(aof=True, node_timeout=60_000)
        first = made.primary_of("{default}")
        others = [node for node in made.nodes if node is not first]
        ports = [node.port for node in made.nodes]
        found = Store(name, f"{made.url}?checks=0", [first, *others], ports, made.settle)
    try:
        yield found
    finally:
        made.stop()


def folder_for_files() -> str:
    """In memory where there is such a folder: rows measure the store, not the disk."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"
