"""Calls that are repeated do not wait for long."""

import pytest


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskharbor.client.retries.FIRST_PAUSE_S", 0.0001)
