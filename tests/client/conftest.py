"""Fixtures of the client's tests."""

import pytest

from taskharbor.client.access import AwaitedAccess, BlockingAccess
from taskharbor.drivers.memory import MemoryDriver
from tests.client.tools import Waits


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
