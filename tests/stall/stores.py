"""Real stores that stand still: servers stopped with SIGSTOP, an SQLite file whose write lock another
program keeps."""

import contextlib
import fcntl
import os
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import pytest

from taskharbor.drivers.sqlite import writer
from tests.servers import postgres, redis


class Store(NamedTuple):
    """`dsn`: with shorter timeouts of the driver itself. `still`: it stands still for a block.
    `reads`: it still answers calls that only read."""

    dsn: str
    still: Callable[[], AbstractContextManager[None]]
    reads: bool = False


@contextlib.contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """Processes that stand still, and go on again whatever happens."""
    try:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # a process of the server that has ended meanwhile
                os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in reversed(pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def postgres_stands() -> AbstractContextManager[None]:
    """The server and the process of every connection; only the kernel accepts new connections."""
    first = postgres.shared().pid()
    found = subprocess.run(["pgrep", "-P", str(first)], capture_output=True, text=True, check=True)
    return stopped(first, *map(int, found.stdout.split()))


def redis_stands() -> AbstractContextManager[None]:
    return stopped(redis.shared().pid)


@contextlib.contextmanager
def another_program_writes(path: Path) -> Iterator[None]:
    """Another program is in the middle of a write."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.close()


@contextlib.contextmanager
def another_process_is_stopped(path: Path) -> Iterator[None]:
    """Another process of ours was stopped while it had the write lock."""
    file = os.open(f"{path}-lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(file)


KINDS = ["postgres", "redis", "sqlite write", "sqlite turn"]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Empty, and answering."""
    monkeypatch.setattr(writer, "LOCK_TIMEOUT_S", 2.0)  # SQLite has no option for it: closing waits that long
    if request.param == "postgres":
        server = postgres.shared()
        return Store(f"{server.address(server.store())}?statement_timeout=2s&connect_timeout=2s", postgres_stands)
    if request.param == "redis":
        import redis as library

        with library.Redis(port=redis.shared().port) as connection:
            connection.flushall()
        return Store(f"{redis.shared().url}?timeout=2s&connect_timeout=1s", redis_stands)
    path = tmp_path / "jobs.db"
    ways = {"sqlite write": another_program_writes, "sqlite turn": another_process_is_stopped}
    return Store(f"sqlite:///{path}", lambda: ways[request.param](path), reads=True)
