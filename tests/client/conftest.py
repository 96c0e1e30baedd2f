"""Fixtures of the client's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from taskharbor.drivers.memory import MemoryDriver
from taskharbor.harbor import Harbor
from taskharbor.store.access import AwaitedAccess, BlockingAccess
from taskharbor.testing import ManualClock
from tests.client.tools import COLOURS, Waits
from tests.flow.stores import STORES


@pytest.fixture(params=["direct", "portal"])
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Blocking calls on the calling thread, and again as with a driver that has none: on the portal's loop."""
    if request.param == "portal":
        monkeypatch.delattr(MemoryDriver, "blocking")
    return str(request.param)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    """Callers wait for nothing; what they would have waited is noted."""
    found = Waits()
    for access in (AwaitedAccess, BlockingAccess):
        monkeypatch.setattr(access, "sleep", found.sleep)
        monkeypatch.setattr(access, "time", found.time)
    return found


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> str:
    """Calls that block, and their awaitable twins."""
    return str(request.param)


SERVERS = [
    pytest.param("postgresql", marks=pytest.mark.lane("postgres")),
    pytest.param("redis", marks=pytest.mark.lane("redis")),
]


@pytest.fixture(params=["memory", "sqlite", *SERVERS])
def harbor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harbor]:
    """A harbor on each store, with a clock that stands still. Tests on a server belong to the lane of that server."""
    dsn = STORES[request.param](tmp_path)
    assert dsn is not None, f"{request.param} cannot run here"
    with Harbor(dsn, clock=ManualClock()) as made:
        yield made
