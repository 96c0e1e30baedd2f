"""The contract on uvloop, on every store. `make test` runs the cases that depend on the loop, `make full` all of them.

The suite runs each case with `asyncio.run`, so uvloop's policy is all that it takes.
"""

import asyncio

import pytest
import uvloop

from tests.drivers.sqlite_files import fast_folder
from tests.drivers.test_conformance_cluster import ClusterCases
from tests.drivers.test_conformance_memory import MemoryCases
from tests.drivers.test_conformance_postgres import PostgresCases
from tests.drivers.test_conformance_redis import RedisCases
from tests.drivers.test_conformance_sqlite import SqliteCases


def depends_on_the_loop(name: str) -> bool:
    """Waiting and waking; calls that are cancelled, and connections that end in the middle of one."""
    return name.startswith(("test_wait_", "test_shutdown_"))


pytestmark = [
    pytest.mark.usefixtures("uvloop_policy"),
    pytest.mark.left_to("full", except_for=lambda name: depends_on_the_loop(name) or name == "test_the_loop"),
]

fast_sqlite_folder = fast_folder


def test_the_loop() -> None:
    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    assert isinstance(asyncio.run(loop()), uvloop.Loop)


class TestMemory(MemoryCases): ...


class TestSqlite(SqliteCases): ...


class TestPostgres(PostgresCases): ...


class TestRedis(RedisCases):
    kind = "redis7"


class TestCluster(ClusterCases): ...
