"""Calls that are repeated do not wait for long; each test has a bench of its own."""

import pytest

from tests.coroutines import pytest_pyfunc_call as pytest_pyfunc_call
from tests.schedules.bench import Bench


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskharbor.store.access.FIRST_PAUSE_S", 0.0001)


@pytest.fixture
def bench() -> Bench:
    return Bench()
