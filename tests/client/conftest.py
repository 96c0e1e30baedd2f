"""Fixtures of the client's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from taskharbor.client.access import AwaitedAccess, BlockingAccess
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.drivers.registry import open_driver
from taskharbor.harbor import Harbor
from taskharbor.testing import ManualClock
from tests.client.tools import COLOURS, Waits


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


@pytest.fixture(params=["memory", "sqlite"])
def harbor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harbor]:
    """A harbor on each store that needs no server, with a clock that stands still."""
    dsn = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"
    with Harbor(open_driver(dsn), clock=ManualClock()) as made:
        yield made
