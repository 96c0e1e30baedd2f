"""Fixtures of the client's tests."""

import pytest

from tests.client.tools import Waits


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    """Callers wait for nothing; what they would have waited is noted."""
    found = Waits()
    monkeypatch.setattr("taskharbor.client.polling.sleep", found.sleep)
    monkeypatch.setattr("taskharbor.client.polling.time", found.time)
    return found
