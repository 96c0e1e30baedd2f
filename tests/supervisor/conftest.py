"""The stores on which worker processes are tested."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import postgres, redis
from tests.supervisor.worker_run import Yard, yard


@pytest.fixture
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Yard]:
    """A yard on the store that the test's `on(…)` names."""
    if request.param == "sqlite":
        dsn = f"sqlite:///{tmp_path}/jobs.db"
    elif request.param == "postgres":
        server = postgres.shared()
        dsn = server.address(server.store())
    else:
        redis.shared().empty()
        dsn = redis.shared().url
    with yard(dsn, tmp_path) as made:
        yield made


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Yard]:
    """A yard on SQLite, for what does not depend on the store."""
    with yard(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as made:
        yield made
