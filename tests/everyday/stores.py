"""The stores of the everyday scene. A further one is one more entry of STORES; the scene itself knows none of them.

An entry says how to get an empty store, which tables of the application's own stand beside it (on SQL stores), and what
to look at when everything is over.
"""

import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from taskharbor.drivers.postgres import statement
from taskharbor.drivers.sqlite import schema
from tests import lanes
from tests.everyday.held_up import HeldUp
from tests.everyday.tasks import path_of
from tests.servers import postgres, redis, sentinel

BOOKINGS = "CREATE TABLE bookings (n BIGINT)"


class Store(NamedTuple):
    """`empty` returns the DSN of an empty store, `sound` what is wrong with it at the end."""

    empty: Callable[[Path], str]
    sound: Callable[[str], list[str]] = lambda dsn: []
    bookings: Callable[[str], Counter[int]] | None = None
    always: bool = True  # also in `make test`; the others are sent the same commands as Redis


def _upgraded(number: int, ours: int) -> list[str]:
    return [] if number == ours + 1 else [f"it was never upgraded: its schema is number {number}"]


# SQLite


def _sqlite(folder: Path) -> str:
    path = folder / "harbor.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute(BOOKINGS)
    return f"sqlite:///{path}"


def _sqlite_sound(dsn: str) -> list[str]:
    with closing(sqlite3.connect(path_of(dsn))) as file:
        wrong = [text for (text,) in file.execute("PRAGMA integrity_check") if text != "ok"]
        (number,) = file.execute("SELECT version FROM taskharbor_meta").fetchone()
    return [*wrong, *_upgraded(number, schema.SCHEMA)]


def _sqlite_bookings(dsn: str) -> Counter[int]:
    with closing(sqlite3.connect(path_of(dsn))) as file:
        return Counter(n for (n,) in file.execute("SELECT n FROM bookings"))


# PostgreSQL


def _postgres(folder: Path) -> str:
    dsn = postgres.shared().address(postgres.shared().store())
    with psycopg.connect(dsn) as connection:
        connection.execute(BOOKINGS)
    return dsn


def _postgres_sound(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as connection:
        found = connection.execute("select deadlocks from pg_stat_database where datname = current_database()")
        row = found.fetchone()
        wrong = [] if row == (0,) else [f"deadlocks: {row}"]
        (number,) = connection.execute("select max(version) from taskharbor.meta").fetchone() or (0,)
    return [*wrong, *_upgraded(number, statement.VERSION)]


def _postgres_bookings(dsn: str) -> Counter[int]:
    with psycopg.connect(dsn) as connection:
        return Counter(n for (n,) in connection.execute("SELECT n FROM bookings"))


# Redis


def _redis(shared: Callable[[], Any], servers: Callable[[Any], list[redis.Server]], always: bool = False) -> Store:
    """`shared` returns the server or Cluster to empty and connect to, `servers` the servers it consists of."""
    watches: list[HeldUp] = []

    def empty(folder: Path) -> str:
        shared().empty()
        if lanes.run() != "test":  # no time is asserted there
            watches.append(HeldUp(servers(shared())))
        return str(shared().url)

    def sound(dsn: str) -> list[str]:
        return watches.pop().end() if watches else []

    return Store(empty, sound, always=always)


STORES = {
    "sqlite": Store(_sqlite, _sqlite_sound, _sqlite_bookings),
    "postgresql": Store(_postgres, _postgres_sound, _postgres_bookings),
    "redis": _redis(redis.shared, lambda server: [server], always=True),
    "valkey": _redis(partial(redis.shared, "valkey"), lambda server: [server]),
    "cluster": _redis(redis.shared_cluster, lambda cluster: cluster.nodes),
    "sentinel": _redis(sentinel.shared_sentinels, lambda watched: watched.servers),
}
