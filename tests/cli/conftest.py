"""What the tests of the command line share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import postgres, redis


@pytest.fixture
def dsn(tmp_path: Path) -> str:
    """An SQLite file that is not there yet."""
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture(scope="session")
def redis_server() -> Iterator[redis.Server]:
    """A Redis that the tests of this process share."""
    server = redis.Server()
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def any_dsn(request: pytest.FixtureRequest, dsn: str) -> str:
    """An empty store of each kind."""
    if request.param == "sqlite":
        return dsn
    if request.param == "postgres":
        server = postgres.shared()
        return server.address(server.store())
    shared: redis.Server = request.getfixturevalue("redis_server")
    shared.empty()
    return shared.url
