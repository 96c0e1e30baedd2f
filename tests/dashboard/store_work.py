"""How much a store does for one visit to a dashboard: not in seconds, but in steps, pages or commands.

A visit is a dashboard with a driver of its own on the same store. PostgreSQL writes the statistics of a connection when
that ends, so each visit has its own connections, and what opening and closing them costs is taken off.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from taskharbor.drivers.memory import MemoryDriver
from taskharbor.drivers.postgres import PostgresDriver
from taskharbor.drivers.redis import RedisDriver
from taskharbor.drivers.sqlite import SqliteDriver
from tests.dashboard.scene import Scene
from tests.dashboard.site import Site
from tests.servers import postgres, redis

STORES = ("sqlite", "postgres", "redis", "memory")
EACH_STEPS = 100  # of SQLite's machine
PAGES = """
select coalesce(sum(coalesce(heap_blks_hit, 0) + coalesce(heap_blks_read, 0) + coalesce(idx_blks_hit, 0)
                    + coalesce(idx_blks_read, 0)), 0)
from pg_statio_user_tables
"""
OTHERS = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"


class StoreWork:
    """One store, and what its driver made it do. This one counts nothing."""

    place: str | None = None  # where a crowd can be stored by SQL

    def __init__(self) -> None:
        self.scene = Scene()
        self._memory = MemoryDriver()

    def driver(self) -> Any:
        """A driver of the store, not opened."""
        return self._memory

    async def done(self) -> int:
        """What was done since the last call."""
        return 0

    async def close(self) -> None:
        """End what was opened for measuring."""

    @asynccontextmanager
    async def visit(self, counted: Callable[[Any], Any]) -> AsyncIterator[tuple[Site, Any]]:
        """A dashboard of the store, through a driver that counts."""
        wrapped = counted(self.driver())
        site = Site(wrapped)
        site.scene = self.scene
        await site.open(played=False)
        await self.begin(wrapped.inner)
        try:
            yield site, wrapped
        finally:
            await site.harbor.aclose()

    async def begin(self, driver: Any) -> None:
        """Count from here, if that can be."""


class SqliteWork(StoreWork):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.place = str(path)
        self._steps = 0

    def driver(self) -> Any:
        return SqliteDriver(f"sqlite:///{self.place}")

    async def begin(self, driver: Any) -> None:
        def step() -> None:
            self._steps += 1

        self._steps = 0
        driver.database.reader.file.get().set_progress_handler(step, EACH_STEPS)

    async def done(self) -> int:
        return self._steps


class PostgresWork(StoreWork):
    def __init__(self) -> None:
        super().__init__()
        server = postgres.shared()
        self.address = self.place = server.address(server.store())
        self._opening = self._before = 0

    def driver(self) -> Any:
        return PostgresDriver(self.address)

    async def begin(self, driver: Any) -> None:
        if not self._opening:
            other = PostgresDriver(self.address)
            before = await self._pages()
            await other.open()
            await other.close()
            self._opening = max(1, await self._pages() - before)
        self._before = await self._pages()

    async def done(self) -> int:
        return max(0, await self._pages(alone=True) - self._before - self._opening)

    async def _pages(self, *, alone: bool = False) -> int:
        """All pages that were touched. `alone`: when all other connections have ended."""
        import psycopg

        async with await psycopg.AsyncConnection.connect(self.address, autocommit=True) as connection:
            while alone and (await (await connection.execute(OTHERS)).fetchone() or (0,))[0]:
                await connection.execute("select pg_sleep(0.05)")  # in the server: until it has noticed
            found = await (await connection.execute(PAGES.encode())).fetchone()
        return int(found[0]) if found else 0


class RedisWork(StoreWork):
    def __init__(self) -> None:
        super().__init__()
        self._server = redis.shared()
        self._server.empty()
        self._client = self._server.client()
        self._before = 0

    def driver(self) -> Any:
        return RedisDriver(f"{self._server.url}?checks=0")

    async def begin(self, driver: Any) -> None:
        self._before = self._commands()

    async def done(self) -> int:
        return self._commands() - self._before

    async def close(self) -> None:
        self._client.close()
        self._server.empty()

    def _commands(self) -> int:
        stats = self._client.info("commandstats")
        return sum(int(each["calls"]) for name, each in stats.items() if name != "cmdstat_info")


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[StoreWork]:
    """An empty store of a kind."""
    made: StoreWork
    if kind == "sqlite":
        made = SqliteWork(folder / "jobs.db")
    elif kind == "memory":
        made = StoreWork()
    else:
        made = PostgresWork() if kind == "postgres" else RedisWork()
    try:
        yield made
    finally:
        await made.close()
