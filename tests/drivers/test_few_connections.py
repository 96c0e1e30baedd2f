"""A worker in a program, on a server that gives it too few connections: it waits, and says why."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from taskharbor.drivers import BackendUnavailable, Driver, WrappedDriver, open_driver
from taskharbor.events import Event, JobSucceeded
from taskharbor.worker import Worker
from tests.drivers.test_store_worker import run_on
from tests.servers import postgres
from tests.servers import redis as redis_servers
from tests.worker.test_renewals import lose_without_the_store
from tests.worker.workbench import job, run


class Listener:
    """Keeps the events of a worker, and waits for one."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    async def heard(self, kind: type[Event]) -> Any:
        while not (found := [event for event in self.events if type(event) is kind]):
            await asyncio.sleep(0.01)
        return found[0]


class Watched(WrappedDriver):
    """A driver, with its siblings: it counts how many are open, and reserves before the heart's was."""

    def __init__(self, inner: Driver, counts: Counter[str]) -> None:
        super().__init__(inner)
        self._counts = counts

    def sibling(self) -> Driver:
        return Watched(self.inner.sibling(), self._counts)

    async def open(self) -> None:
        try:
            await self.inner.open()
        except BackendUnavailable:
            self._counts["refused"] += 1
            raise
        self._counts["open"] += 1

    async def reserve(self, *arguments: Any) -> Any:
        self._counts["early reserve"] += self._counts["open"] < 2  # the worker's, and its heart's
        return await self.inner.reserve(*arguments)


async def waits_for_its_heart(dsn: str, let_one_more: Any) -> None:
    """A worker whose heart gets no connection takes no job until it has one."""
    events = Listener()
    ran: list[int] = []
    counts: Counter[str] = Counter()
    source = Watched(open_driver(dsn), counts)
    worker = Worker(cast(Driver, source), observers=[events], concurrency=2, lease=6)
    worker.register("t", lambda: ran.append(1))
    running = asyncio.create_task(worker.arun())
    try:
        while not counts["refused"]:  # whatever else had no connection before: one outage is one event
            await asyncio.sleep(0.01)
        let_one_more()
        await events.heard(JobSucceeded)
    finally:
        worker.hurry()
        await running
    assert not counts["early reserve"]
    assert len(ran) == 1


@pytest.mark.lane("postgres")
def test_a_worker_on_postgres_takes_no_job_without_a_connection_for_renewals() -> None:
    server = postgres.shared()
    store = server.store()
    admin = server.address(store)
    role = f"one_{store}"
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f"create role {role} login connection limit 1")
        connection.execute(f"grant all on schema taskharbor to {role}")
        connection.execute(f"grant all on all tables in schema taskharbor to {role}")
        connection.execute(f"grant all on all sequences in schema taskharbor to {role}")

    def let_more() -> None:
        with psycopg.connect(admin, autocommit=True) as connection:
            connection.execute(f"alter role {role} connection limit 6")

    async def scenario() -> None:
        async with opened(admin) as driver:
            await driver.enqueue([job("j")], await driver.server_time())
        # A pool of one: a larger one that is refused a second connection gives up its first, which the heart then gets.
        dsn = admin.replace("harbor@", f"{role}@")
        await waits_for_its_heart(f"{dsn}{'&' if '?' in dsn else '?'}pool_size=1", let_more)

    run(scenario())


@pytest.mark.lane("redis")
def test_a_worker_on_redis_takes_no_job_without_a_connection_for_renewals() -> None:
    server = redis_servers.Server()
    try:
        admin = server.client()

        async def scenario() -> None:
            async with opened(server.url) as driver:
                await driver.enqueue([job("j")], await driver.server_time())
            await one_at_a_time(lambda: admin.info("clients")["connected_clients"] <= 1)
            admin.config_set("maxclients", 2)  # this one, and the worker's
            await waits_for_its_heart(server.url, lambda: admin.config_set("maxclients", 100))

        run(scenario())
        admin.close()
    finally:
        server.stop()


@pytest.mark.lane("sqlite")
def test_a_job_is_not_dead_of_renewals_that_fail_on_sqlite(tmp_path: Path) -> None:
    run_on(f"sqlite:///{tmp_path}/jobs.db", lose_without_the_store)


@pytest.mark.lane("postgres")
def test_a_job_is_not_dead_of_renewals_that_fail_on_postgres() -> None:
    server = postgres.shared()
    run_on(server.address(server.store()), lose_without_the_store)


@pytest.mark.lane("redis")
def test_a_job_is_not_dead_of_renewals_that_fail_on_redis() -> None:
    redis_servers.shared().empty()
    run_on(redis_servers.shared().url, lose_without_the_store)


@contextlib.asynccontextmanager
async def opened(dsn: str) -> AsyncIterator[Any]:
    driver = open_driver(dsn)
    await driver.open()
    try:
        yield driver
    finally:
        await driver.close()


async def one_at_a_time(free: Any) -> None:
    """Wait until the connections of a closed driver are gone."""
    while not free():
        await asyncio.sleep(0.01)
