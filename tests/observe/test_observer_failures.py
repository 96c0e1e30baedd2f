"""An observer that fails is reported, and reported again when it fails later."""

import logging
from types import SimpleNamespace

import pytest

from taskharbor.events import StoreBack
from taskharbor.model import events
from taskharbor.model.events import Event, Observers


def test_a_failure_is_reported_once_a_minute(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    now = 1_000.0
    monkeypatch.setattr(events, "time", SimpleNamespace(monotonic=lambda: now))

    def late(event: Event) -> None:
        raise TimeoutError("c4n4ry")

    observers = Observers([late])

    def reports() -> int:
        return len(caplog.records)

    with caplog.at_level(logging.ERROR, "taskharbor.events"):
        for _ in range(3):
            observers.emit(StoreBack("w", 1.0))
        assert reports() == 1
        now += events.COMPLAINS_AGAIN_S
        for _ in range(3):
            observers.emit(StoreBack("w", 1.0))
        assert reports() == 2
    assert "failed with TimeoutError" in caplog.text
    assert "c4n4ry" not in caplog.text
