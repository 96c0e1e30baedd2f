"""Files for tests of the SQLite driver: in memory where the system has such a folder, and damaged on demand."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from taskharbor.drivers import JobRecord
from taskharbor.drivers.sqlite import SqliteDriver

T = TypeVar("T")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)

_CHANGES = {
    "type": "type = ''",
    "payload": "payload = NULL",
    "number": "attempts = 'many'",
    "state": "state = 'nonsense'",
}


_VALUES = {
    "missing": "NULL",
    "empty": "''",
    "word": "'many'",
    "bytes": "CAST(x'fffe' AS TEXT)",
    "negative": "-1",
    "huge": f"{2**62}",
    "fraction": "1.5",
    "infinite": "9e999",
    "nested": """'[["x"]]'""",
}


def memory_folder() -> str | None:
    """A file system in memory: the suite commits ten thousand times, and durability is tested elsewhere."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@pytest.fixture(scope="session")
def fast_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="taskharbor-", dir=memory_folder()))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def damage(path: str, id: str, how: str) -> None:
    """Change a row as another program could."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        assert connection.execute(f"UPDATE taskharbor_jobs SET {_CHANGES[how]} WHERE id = ?", (id,)).rowcount == 1
    finally:
        connection.close()


def damage_field(path: str, id: str, field: str, kind: str) -> bool:
    """Put a wrong value into a column of a job."""
    column = {"group": "grp", "ran_on": "worker", "has_memos": "memos"}.get(field, field)
    with closing(sqlite3.connect(path, timeout=30)) as connection:
        connection.execute(f"UPDATE taskharbor_jobs SET {column} = {_VALUES[kind]} WHERE id = ?", (id,))
        connection.commit()
    return True


_FOREIGN = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(sys.argv[2])
connection.execute("SELECT count(*) FROM taskharbor_jobs").fetchone()
print("begun", flush=True)
sys.stdin.read()
"""


@contextmanager
def foreign_transaction(path: Path | str, begin: str) -> Iterator[subprocess.Popen[str]]:
    """Another program with a transaction open on the file, until the block ends."""
    command = [sys.executable, "-c", _FOREIGN, str(path), begin]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        try:
            yield process
        finally:
            process.stdin.close()


def job(id: str, **fields: Any) -> JobRecord:
    return JobRecord(id=id, type="t", **fields)


@asynccontextmanager
async def opened(path: Path | str, **options: str) -> AsyncIterator[SqliteDriver]:
    """An open driver."""
    query = "&".join(f"{name}={value}" for name, value in options.items())
    driver = SqliteDriver(f"sqlite:///{path}?{query}")
    await driver.open()
    try:
        async with asyncio.timeout(60):
            yield driver
    finally:
        await driver.close()


@pytest.fixture
def opened_driver(path: Path) -> Iterator[SqliteDriver]:
    """An open driver on the file `path`, a fixture of the test."""
    driver = SqliteDriver(f"sqlite:///{path}")
    asyncio.run(driver.open())
    yield driver
    asyncio.run(driver.close())


def on(path: Path | str, scenario: Callable[[SqliteDriver], Awaitable[T]], **options: str) -> T:
    """Run a scenario on an opened driver."""

    async def live() -> T:
        async with opened(path, **options) as driver:
            return await scenario(driver)

    with ThreadPoolExecutor(1) as thread:  # the test may be a coroutine itself
        return thread.submit(lambda: asyncio.run(live())).result()
