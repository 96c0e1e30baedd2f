"""Where samples are taken: a new, empty store for each, on servers that the benchmark starts itself.

Servers keep their data as they would in production: PostgreSQL with fsync and synchronous_commit on, Redis with an
append-only file that is flushed every second.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tests.servers.postgres import Server

POSTGRES = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "256MB",
    "max_wal_size": "8GB",  # no checkpoint falls into a sample
    "checkpoint_timeout": "1h",
    "autovacuum_naptime": "1min",
}


class Place(msgspec.Struct):
    """An empty store. `server`: the process whose time is counted as well, 0 if there is none."""

    address: str
    server: int
    close: Callable[[], None]


class Places:
    """Places of one kind of store, and the server behind them."""

    facts = ""

    def new(self) -> Place:
        """A place of its own for one sample, or for several that need what the ones before left behind."""
        raise NotImplementedError

    def tidy(self, place: Place) -> None:
        """After much was stored: let the server write and analyse it, so that no sample pays for that."""


@contextlib.contextmanager
def sqlite() -> Iterator[Places]:
    """Files in a folder on a disk: /tmp may be memory."""
    folder = Path(tempfile.mkdtemp(prefix="th-bench-", dir="/var/tmp" if os.access("/var/tmp", os.W_OK) else None))
    try:
        yield Files(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Files(Places):
    """Files in a folder."""

    facts = f"SQLite {sqlite3.sqlite_version}"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0

    def new(self) -> Place:
        self._made += 1
        folder = self._folder / str(self._made)
        folder.mkdir()
        return Place(str(folder / "jobs.db"), 0, lambda: shutil.rmtree(folder, ignore_errors=True))


@contextlib.contextmanager
def postgres() -> Iterator[Places]:
    """Databases of one server."""
    from tests.servers.postgres import FOLDERS, Server

    server = Server(FOLDERS, of=None, **POSTGRES)
    try:
        yield Databases(server)
    finally:
        server.stop()


class Databases(Places):
    """Databases of one PostgreSQL server."""

    def __init__(self, server: Server) -> None:
        from tests.servers.postgres import binary

        told = subprocess.run([binary("postgres"), "--version"], capture_output=True, text=True, check=True).stdout
        self.facts = f"PostgreSQL {told.split()[2]}"
        self._server = server

    def new(self) -> Place:
        name = self._server.database()
        return Place(self._server.address(name), self._server.pid(), lambda: self._do(f"drop database {name} (force)"))

    def tidy(self, place: Place) -> None:
        self._do("vacuum analyze", place.address)
        self._do("checkpoint")

    def _do(self, statement: str, address: str = "") -> None:
        import psycopg

        with psycopg.connect(address or self._server.address(), autocommit=True) as connection:
            connection.execute(statement.encode())


@contextlib.contextmanager
def redis() -> Iterator[Places]:
    """A server for each sample: the file of one that ran before would be rewritten in the middle of the next."""
    yield Servers()


class Servers(Places):
    """Redis servers."""

    def __init__(self) -> None:
        from tests.servers.redis import binary

        told = subprocess.run([binary(), "--version"], capture_output=True, text=True, check=True).stdout
        self.facts = f"Redis {told.partition('v=')[2].split()[0]}"

    def new(self) -> Place:
        from tests.servers.redis import Server

        server = Server(aof=True, fsync="everysec", auto_aof_rewrite_percentage="0")
        return Place(server.url, server.pid, server.stop)


OPEN: dict[str, Callable[[], contextlib.AbstractContextManager[Places]]] = {
    "sqlite": sqlite,
    "postgres": postgres,
    "redis": redis,
}
